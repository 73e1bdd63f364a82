// A button that deletes one object after a question.

import { element } from "../dom.js";
import { confirm } from "./dialog.js";
import { guard } from "./guard.js";
import { notify } from "./notice.js";

/// `remove` sends the request; what succeeds shows in the list.
export function deleteButton({ label = "Delete", name, ask, right, remove }) {
  const what = `${label} ${name}`;
  const click = async () => {
    if (!(await confirm({ title: `${what}?`, text: ask, action: label }))) return;
    try {
      await remove();
    } catch (error) {
      notify(`${what}: ${error.message}`, "bad");
    }
  };
  const made = element("button", { type: "button", class: "danger", "data-key": what, "aria-label": what, on: { click } }, label);
  return guard(made, right);
}
