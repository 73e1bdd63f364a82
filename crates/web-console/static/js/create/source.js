// A field for an object as YAML, with the lines of its errors.

import { element } from "../dom.js";
import { lineOf } from "./place.js";

/// The field, and a function that makes the entry of a fault for a list of problems.
export function sourceField(label) {
  const area = element("textarea", { id: "source", rows: "26", spellcheck: "false", "aria-describedby": "problems" });
  const part = element("div", { class: "field" }, element("label", { for: "source" }, label), area);

  function atLine({ field, message }) {
    const line = lineOf(area.value, field);
    area.setAttribute("aria-invalid", "true");
    const text = `${field}: ${message}`;
    if (line < 0) return element("li", {}, text);
    const click = () => select(area, line);
    return element("li", {}, element("button", { type: "button", class: "quiet", on: { click } }, `Line ${line + 1}`), text);
  }

  return { area, part, atLine };
}

function select(area, line) {
  const before = area.value.split("\n").slice(0, line).join("\n").length + (line > 0 ? 1 : 0);
  const length = area.value.split("\n")[line].length;
  area.focus();
  area.setSelectionRange(before, before + length);
}
