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
    const values = () => Object.fromEntries(controls.map(([name, input]) => [name, input.value.trim()]));
    const suggest = () => controls.forEach(([, , , offer]) => offer?.(values()));
    const error = element("p", { class: "error", role: "alert" });
    const send = element("button", { class: "main" }, action);
    const onSubmit = async (event) => {
      event.preventDefault();
      send.disabled = true;
      error.textContent = "";
      try {
        await submit(values());
        dialog.close("done");
      } catch (failure) {
        error.textContent = failure.message;
      } finally {
        send.disabled = false;
      }
    };
    const cancel = element("button", { type: "button", on: { click: () => dialog.close("") } }, "Cancel");
    const form = element("form", { on: { submit: onSubmit, change: suggest } }, controls.map(([, , row]) => row), error,
      element("div", { class: "group" }, cancel, send));
    const dialog = open({ title, text }, form, () => resolve(dialog.returnValue === "done"));
    suggest();
  });
}

/// Shows something until the user closes it.
export function inform({ title, text, content }) {
  const close = element("form", { method: "dialog", class: "group" }, element("button", { autofocus: true }, "Close"));
  open({ title, text }, element("div", {}, content, close), () => {});
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

/// A field: with `options` one of them (texts, or values with texts), with `suggest` a text with suggestions. That is a
/// function of all values, for a promise of names. Returns also how to ask for suggestions.
function control({ name, label, value = "", help, options, suggest, optional }) {
  const id = `dialog-${name}`;
  const list = suggest && element("datalist", { id: `${id}-list` });
  const note = help && element("div", { class: "help", id: `${id}-help` }, help);
  const attributes = { id, name, required: !optional, autocomplete: "off", spellcheck: "false", list: list?.id,
    "aria-describedby": note?.id };
  const choices = options?.map((one) => (typeof one === "string" ? [one, one] : one));
  const input = element(options ? "select" : "input", attributes,
    choices?.map(([option, text]) => element("option", { value: option }, text)));
  if (value) input.value = value;
  const offer = suggest && (async (values) => {
    const names = await suggest(values);
    list.replaceChildren(...names.map((one) => element("option", { value: one })));
  });
  return [input, element("div", { class: "field" }, element("label", { for: id }, label), input, list, note), offer];
}
