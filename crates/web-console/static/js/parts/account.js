// The signed-in user in the header of the page, with the button to sign out.

import { element, fill } from "../dom.js";
import { account, key, method, timeOf } from "../session.js";

/// Users of `virtctl ui` end it where they started it, so the page names only users with a token.
export function drawAccount(place, onSignOut) {
  place.hidden = !key() || method() !== "token";
  if (place.hidden) return fill(place);
  const { name, until } = account();
  const end = until && element("span", { class: "optional" }, ` until ${timeOf(until)}`);
  return fill(place, element("span", { class: "help", id: "user" }, name ?? "Signed in", end),
    element("button", { type: "button", class: "quiet", id: "sign-out", on: { click: onSignOut } }, "Sign out"));
}
