// Asks the API server whether the user may do something, so that a button can say so beforehand.

import { call } from "./api.js";

const REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const VALID_FOR = 60_000;
const answers = new Map();

/// Whether the user has a right, given as `resourceAttributes`. If the question cannot be answered, the
/// answer is yes: the API server decides on the request itself anyway.
export function may(attributes) {
  const question = JSON.stringify(attributes);
  const known = answers.get(question);
  if (known && known.time + VALID_FOR > performance.now()) return known.answer;
  const answer = ask(attributes);
  answers.set(question, { time: performance.now(), answer });
  return answer;
}

async function ask(resourceAttributes) {
  const body = JSON.stringify({
    apiVersion: "authorization.k8s.io/v1",
    kind: "SelfSubjectAccessReview",
    spec: { resourceAttributes },
  });
  try {
    const review = await call("POST", REVIEWS, { body });
    return review.status.allowed === true;
  } catch {
    return true;
  }
}
