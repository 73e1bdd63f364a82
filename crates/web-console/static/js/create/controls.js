// The controls of the form, from its table of fields.

import { element } from "../dom.js";
import { namespaceField } from "../parts/namespace.js";

/// The control of a field: its row, the element for its errors, and how to read it.
export function control({ name, label, type = "text", help, options = [], required, inputmode }, value) {
  const attributes = { id: `field-${name}`, name, required, inputmode, "aria-describedby": `help-${name} error-${name}` };
  const error = element("div", { class: "error", id: `error-${name}` });
  const isList = ["select", "networks"].includes(type);
  const tag = isList ? "select" : type === "textarea" ? "textarea" : "input";
  const several = type === "networks" && { multiple: true, size: 3 };
  let input = element(tag, { autocomplete: "off", ...several, ...attributes });
  let content = input;
  if (type === "namespace") content = [input] = namespaceField(attributes);
  if (type === "textarea") input.rows = 4;
  input.append(...options.map(([option, text]) => element("option", { value: option }, text)));
  if (type !== "networks") input.value = value;
  const row = element("div", { class: "field" }, element("label", { for: attributes.id }, label), content,
    element("div", { class: "help", id: `help-${name}` }, help ?? ""), error);
  const read = () => (type === "networks" ? [...input.selectedOptions].map((one) => one.value) : input.value);
  return { input, error, row, read };
}

/// Offers groups of choices after the first option, and keeps what is chosen if it is still there.
export function offer(select, groups, textOf) {
  const chosen = select.value;
  const first = select.options[0];
  const filled = groups.filter(({ choices }) => choices.length > 0);
  select.replaceChildren(first, ...filled.map(({ label, choices }) =>
    element("optgroup", { label }, choices.map((one) => element("option", { value: one.value }, textOf(one))))));
  select.value = chosen;
  if (select.selectedIndex < 0) select.value = first.value;
}
