// Disables what the user has no right to, with the missing right.

import { known, may } from "../rights.js";

/// The right that each control needs now; answers about earlier ones come too late.
const wanted = new WeakMap();

/// Disables a button or a link unless the user has the right, given as `resourceAttributes`. Returns it.
export function guard(made, right) {
  const before = known(right);
  const answer = may(right);
  wanted.set(made, right);
  if (before === undefined) answer.then((allowed) => apply(made, right, allowed));
  else apply(made, right, before);
  return made;
}

/// Like `guard`, for a button that needed another right before.
export function guardAgain(made, right) {
  if (made.title && wanted.has(made)) {
    made.disabled = false;
    made.title = "";
  }
  return guard(made, right);
}

export function nameOf({ resource, subresource, verb, namespace }) {
  const right = subresource ? `${resource}/${subresource}` : `${resource}, verb ${verb}`;
  return `You have no right to ${right} in namespace ${namespace}.`;
}

function apply(made, right, allowed) {
  if (wanted.get(made) !== right) return;
  made.dataset.checked = "true";
  if (allowed) return;
  made.title = nameOf(right);
  if (made.localName === "a") {
    made.removeAttribute("href");
    made.setAttribute("aria-disabled", "true");
  } else {
    made.disabled = true;
  }
}
