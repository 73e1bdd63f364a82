// Asks before something that cannot be undone, or for what an operation needs.

import { element } from "../dom.js";

/// Resolves to whether the user agreed.
export function confirm({ title, text, action }) {
  return new Promise((resolve) => {
    const form = element("form", { method: "dialog", class: "group" },
      element("button", { value: "no", autofocus: true }, "Cancel"),
      element("button", { value: "yes", class: "danger" }, action));
    open({ title, text }, form, (dialog) => resolve(dialog.returnValue === "yes"));
  });
}

/// Asks for values and passes them to `submit`. The dialog shows why that failed and stays open until it
/// succeeds or the user gives up. Resolves to whether it succeeded.
export function ask({ title, text, fields, action, submit }) {
  return new Promise((resolve) => {
    const controls = fields.map((field) => [field.name, ...control(field)]);
    const error = element("p", { class: "error", role: "alert" });
    const send = element("button", { class: "main" }, action);
    const onSubmit = async (event) => {
      event.preventDefault();
      send.disabled = true;
      error.textContent = "";
      try {
        await submit(Object.fromEntries(controls.map(([name, input]) => [name, input.value.trim()])));
        dialog.close("done");
      } catch (failure) {
        error.textContent = failure.message;
      } finally {
        send.disabled = false;
      }
    };
    const cancel = element("button", { type: "button", on: { click: () => dialog.close("") } }, "Cancel");
    const form = element("form", { on: { submit: onSubmit } }, controls.map(([, , row]) => row), error,
      element("div", { class: "group" }, cancel, send));
    const dialog = open({ title, text }, form, () => resolve(dialog.returnValue === "done"));
  });
}

function open({ title, text }, form, onClose) {
  const dialog = element("dialog", { "aria-labelledby": "dialog-title" },
    element("h2", { id: "dialog-title" }, title), element("p", {}, text), form);
  dialog.addEventListener("close", () => {
    onClose(dialog);
    dialog.remove();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/// A field: with `options` one of them, with `suggest` (a promise of names) a text with suggestions.
function control({ name, label, value = "", options, suggest }) {
  const id = `dialog-${name}`;
  const list = suggest && element("datalist", { id: `${id}-list` });
  const attributes = { id, name, required: true, autocomplete: "off", spellcheck: "false", list: list?.id };
  const input = element(options ? "select" : "input", attributes, options?.map((one) => element("option", {}, one)));
  if (value) input.value = value;
  suggest?.then((names) => list.replaceChildren(...names.map((one) => element("option", { value: one }))));
  return [input, element("div", { class: "field" }, element("label", { for: id }, label), input, list)];
}
