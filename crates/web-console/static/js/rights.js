// Asks the API server whether the user may do something, so that a button can say so beforehand.

import { call } from "./api.js";

const REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const VALID_FOR = 60_000;
const answers = new Map();

/// Whether the user has a right, given as `resourceAttributes`. If the question cannot be answered, the
/// answer is yes: the API server decides on the request itself anyway.
export function may(attributes) {
  const question = JSON.stringify(attributes);
  const before = answers.get(question);
  if (before && before.time + VALID_FOR > performance.now()) return before.answer;
  const asked = { time: performance.now(), value: before?.value };
  asked.answer = ask(attributes).then((value) => (asked.value = value));
  answers.set(question, asked);
  return asked.answer;
}

/// The last answer; undefined before the first.
export function known(attributes) {
  return answers.get(JSON.stringify(attributes))?.value;
}

/// Forgets all answers.
export function forget() {
  answers.clear();
}

/// Who may do something with all objects of a namespace is not asked about each of them.
async function ask(attributes) {
  const { name, ...all } = attributes;
  if (name !== undefined && (await may(all))) return true;
  return review(attributes);
}

async function review(resourceAttributes) {
  const body = JSON.stringify({
    apiVersion: "authorization.k8s.io/v1",
    kind: "SelfSubjectAccessReview",
    spec: { resourceAttributes },
  });
  try {
    const { status } = await call("POST", REVIEWS, { body });
    return status.allowed === true;
  } catch {
    return true;
  }
}
