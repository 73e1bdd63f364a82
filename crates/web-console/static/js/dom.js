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

/// Like `fill`, but keeps elements that are equal to the new ones, with their listeners: a click, a selection or
/// the focus survives an update. Listeners must not depend on more than attributes and text show.
export function refresh(parent, ...children) {
  const focused = parent.contains(document.activeElement) && document.activeElement.dataset?.key;
  merge(parent, [...element("div", {}, ...children).childNodes]);
  if (focused && !parent.contains(document.activeElement)) {
    parent.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }
  return parent;
}

function merge(parent, wanted) {
  for (const extra of [...parent.childNodes].slice(wanted.length)) extra.remove();
  wanted.forEach((node, index) => {
    const present = parent.childNodes[index];
    if (!present) parent.append(node);
    else if (present.isEqualNode(node)) return;
    else if (isContainer(present, node)) merge(present, [...node.childNodes]);
    else present.replaceWith(node);
  });
}

/// Whether two elements differ in their content alone.
function isContainer(one, other) {
  const [first, second] = [one.cloneNode(false), other.cloneNode(false)];
  return one.nodeType === Node.ELEMENT_NODE && one.localName !== "button" && first.isEqualNode(second);
}

function present(children) {
  return children.flat(2).filter((child) => child !== null && child !== undefined && child !== false);
}
