// Short messages about finished or failed actions.

import { element } from "../dom.js";

const SHOWN_FOR = 6000;

/// Shows a message; `kind` is "good" or "bad". Errors stay until they are closed.
export function notify(text, kind = "good") {
  const close = element("button", { class: "quiet", "aria-label": "Close", on: { click: () => notice.remove() } }, "×");
  const notice = element("div", { class: `notice ${kind}` }, text, close);
  document.getElementById("notices").append(notice);
  if (kind === "good") setTimeout(() => notice.remove(), SHOWN_FOR);
}
