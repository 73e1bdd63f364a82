// A table with a caption for screen readers; wide ones scroll by themselves.

import { element } from "../dom.js";

/// `columns` are names, or `{ name, optional }` for those that small screens leave out; `rows` are lists of
/// cells.
export function table(label, columns, rows, empty) {
  if (rows.length === 0) return element("p", { class: "empty" }, empty);
  const named = columns.map((column) => (typeof column === "string" ? { name: column } : column));
  const style = (index) => (named[index].optional ? { class: "optional" } : {});
  const head = named.map(({ name }, index) => element("th", { scope: "col", ...style(index) }, name));
  const body = rows.map((cells) =>
    element("tr", {}, cells.map((cell, index) => element("td", style(index), cell ?? ""))));
  return element("div", { class: "scroll" },
    element("table", { "aria-label": label },
      element("thead", {}, element("tr", {}, head)),
      element("tbody", {}, body)));
}
