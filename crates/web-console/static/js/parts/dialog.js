// Asks before something that cannot be undone.

import { element } from "../dom.js";

/// Resolves to whether the user agreed.
export function confirm({ title, text, action }) {
  return new Promise((resolve) => {
    const dialog = element(
      "dialog", { "aria-labelledby": "dialog-title" },
      element("h2", { id: "dialog-title" }, title),
      element("p", {}, text),
      element("form", { method: "dialog", class: "group" },
        element("button", { value: "no", autofocus: true }, "Cancel"),
        element("button", { value: "yes", class: "danger" }, action)),
    );
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes");
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
