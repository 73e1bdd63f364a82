// The buttons of a VM.

import { call } from "../api.js";
import { element, refresh } from "../dom.js";
import { ask, confirm } from "./dialog.js";
import { guard } from "./guard.js";
import { notify } from "./notice.js";
import { DELETE, requestOf, rightOf } from "./verbs.js";

/// Draws the buttons that apply to the VM into `group`. Those that the user has no right to are disabled
/// and say so.
export function drawActions(group, machine, verbs) {
  const buttons = verbs.filter((verb) => verb.applies(machine)).map((verb) => verbButton(verb, machine));
  refresh(group, buttons);
  return buttons.length;
}

export function verbButton(verb, machine) {
  const attributes = {
    type: "button", "data-key": `${verb.name}/${machine.namespace}/${verb.of ?? machine.name}`, "data-verb": verb.name,
    "aria-label": `${verb.label} ${verb.of ?? machine.name}`, class: verb === DELETE ? "danger" : undefined,
    on: { click: () => run(verb, machine, made) },
  };
  const made = element("button", attributes, verb.label);
  return guard(made, rightOf(verb, machine));
}

async function run(verb, machine, made) {
  const { name, namespace } = machine;
  const [method, path] = requestOf(verb, machine);
  const send = (values) => call(method, path, method === "DELETE" ? {} : { body: JSON.stringify(verb.body?.(values, machine) ?? {}) });
  const title = `${verb.label}: ${verb.of ?? name}`;
  const done = () => notify(`${namespace}/${name} ${verb.done}.`);
  if (verb.fields) {
    const isDone = await ask({ title, text: verb.ask, fields: verb.fields(machine), action: verb.label, submit: send });
    return isDone && done();
  }
  if (verb.ask && !(await confirm({ title: `${verb.label} ${verb.of ?? name}?`, text: verb.ask, action: verb.label }))) return;
  made.disabled = true;
  try {
    await send({});
    done();
  } catch (error) {
    notify(`${title}: ${error.message}`, "bad");
  } finally {
    made.disabled = false;
  }
}
