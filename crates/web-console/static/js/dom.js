// Elements from plain data. Text is always text: nothing here makes markup from a string.

/// Makes an element. `on` holds listeners; true is an attribute without a value, false and undefined
/// leave it out.
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  const { on = {}, ...rest } = attributes;
  for (const [name, value] of Object.entries(rest)) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== undefined && value !== null) made.setAttribute(name, value);
  }
  for (const [event, listener] of Object.entries(on)) made.addEventListener(event, listener);
  made.append(...present(children));
  return made;
}

/// Replaces all children. A focused control of the same `data-key` keeps the focus.
export function fill(parent, ...children) {
  const focused = parent.contains(document.activeElement) && document.activeElement.dataset?.key;
  parent.replaceChildren(...present(children));
  if (focused) parent.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  return parent;
}

function present(children) {
  return children.flat(2).filter((child) => child !== null && child !== undefined && child !== false);
}
