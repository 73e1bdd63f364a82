// The buttons of a VM.

import { call } from "../api.js";
import { element, fill } from "../dom.js";
import { may } from "../rights.js";
import { confirm } from "./dialog.js";
import { notify } from "./notice.js";
import { DELETE, requestOf, rightOf, VERBS } from "./verbs.js";

/// Draws the buttons that apply to the VM into `group`. Those that the user has no right to are disabled
/// and say so.
export function drawActions(group, machine, { verbs = [...VERBS, DELETE] } = {}) {
  const buttons = verbs.filter((verb) => verb.applies(machine)).map((verb) => button(verb, machine));
  fill(group, buttons);
}

function button(verb, machine) {
  const attributes = {
    type: "button", "data-key": `${verb.name}/${machine.namespace}/${machine.name}`, "data-verb": verb.name,
    "aria-label": `${verb.label} ${machine.name}`, class: verb === DELETE ? "danger" : undefined,
    on: { click: () => run(verb, machine, made) },
  };
  const made = element("button", attributes, verb.label);
  may(rightOf(verb, machine)).then((allowed) => {
    made.dataset.checked = "true";
    if (allowed) return;
    made.disabled = true;
    const { resource, subresource } = rightOf(verb, machine);
    const right = subresource ? `${resource}/${subresource}` : `${resource}, verb delete`;
    made.title = `You have no right to ${right} in namespace ${machine.namespace}.`;
  });
  return made;
}

async function run(verb, machine, made) {
  const { name, namespace } = machine;
  if (verb.ask && !(await confirm({ title: `${verb.label} ${name}?`, text: verb.ask, action: verb.label }))) return;
  made.disabled = true;
  const [method, path] = requestOf(verb, machine);
  try {
    await call(method, path, method === "PUT" ? { body: "{}" } : {});
    notify(`${namespace}/${name} ${verb.done}.`);
  } catch (error) {
    notify(`${verb.label} ${name}: ${error.message}`, "bad");
  } finally {
    made.disabled = false;
  }
}
