// Disables what the user has no right to, with the missing right.

import { known, may } from "../rights.js";

/// Disables a button or a link unless the user has the right, given as `resourceAttributes`. Returns it.
export function guard(made, right) {
  const before = known(right);
  const answer = may(right);
  if (before === undefined) answer.then((allowed) => apply(made, right, allowed));
  else apply(made, right, before);
  return made;
}

export function nameOf({ resource, subresource, verb, namespace }) {
  const right = subresource ? `${resource}/${subresource}` : `${resource}, verb ${verb}`;
  return `You have no right to ${right} in namespace ${namespace}.`;
}

function apply(made, right, allowed) {
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
