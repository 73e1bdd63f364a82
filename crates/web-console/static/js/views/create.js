// Creates a VM, from a form or from YAML. The server checks it; its errors are shown at their fields.

import { call, collection, VMS } from "../api.js";
import { emptyForm } from "../create/examples.js";
import { fieldOf, FIELDS } from "../create/fields.js";
import { vmOf } from "../create/object.js";
import { faults, lineOf } from "../create/place.js";
import { sourceField } from "../create/source.js";
import { yaml } from "../create/yaml.js";
import { element, fill } from "../dom.js";
import { namespaceField } from "../parts/namespace.js";
import { notify } from "../parts/notice.js";

const INSTANCE_TYPES = "/apis/instancetype.kubevirt.io/v1beta1/virtualmachineclusterinstancetypes";

export function create(main) {
  const start = emptyForm();
  const controls = new Map(FIELDS.map((field) => [field.name, control(field, start[field.name])]));
  const formPart = element("div", {}, [...controls.values()].map(({ row }) => row));
  const { area: source, part: yamlPart, atLine } = sourceField("VirtualMachine");
  yamlPart.hidden = true;
  const problems = element("ul", { id: "problems", class: "error", role: "alert" });
  const buttons = ["Form", "YAML"].map((label) =>
    element("button", { type: "button", role: "tab", "aria-selected": String(label === "Form"), "data-tab": label,
      on: { click: () => choose(label) } }, label));
  const read = () => Object.fromEntries([...controls].map(([name, { input }]) => [name, input.value]));
  let isYaml = false;

  function choose(label) {
    if (label === "YAML" && !isYaml) source.value = yaml(vmOf(read()));
    isYaml = label === "YAML";
    formPart.hidden = isYaml;
    yamlPart.hidden = !isYaml;
    for (const button of buttons) button.setAttribute("aria-selected", String(button.dataset.tab === label));
    clear();
  }

  function clear() {
    fill(problems);
    for (const { input, error } of controls.values()) {
      input.removeAttribute("aria-invalid");
      error.textContent = "";
    }
    source.removeAttribute("aria-invalid");
  }

  async function submit({ dryRun }) {
    clear();
    const query = { fieldValidation: "Strict", ...(dryRun && { dryRun: "All" }) };
    const form = read();
    const body = isYaml ? source.value : JSON.stringify(vmOf(form));
    const type = isYaml ? "application/yaml" : "application/json";
    const namespace = isYaml ? namespaceIn(source.value) ?? form.namespace : form.namespace;
    try {
      const vm = await call("POST", collection(VMS, namespace), { query, body, type });
      if (dryRun) notify("The server accepts this VM.");
      else location.hash = `#/vm/${vm.metadata.namespace}/${vm.metadata.name}`;
    } catch (error) {
      show(error);
    }
  }

  function show(error) {
    const found = faults(error);
    if (found.length === 0) return fill(problems, element("li", {}, error.message));
    const lines = found.map((fault) => (isYaml ? atLine(fault) : atField(fault)));
    fill(problems, lines.filter(Boolean));
    formPart.querySelector("[aria-invalid]")?.focus();
  }

  /// Marks the field of the form; a fault of no field is listed.
  function atField({ field, message }) {
    const known = fieldOf(field);
    if (!known) return element("li", {}, `${field}: ${message}`);
    const { input, error } = controls.get(known.name);
    input.setAttribute("aria-invalid", "true");
    error.textContent = error.textContent ? `${error.textContent}; ${message}` : message;
    return null;
  }

  const check = element("button", { type: "button", id: "check", on: { click: () => submit({ dryRun: true }) } }, "Check");
  const onSubmit = (event) => (event.preventDefault(), submit({ dryRun: false }));
  fill(main,
    element("div", { class: "bar" }, element("h1", { class: "grow" }, "Create a VM"),
      element("div", { class: "group", role: "tablist", "aria-label": "Input" }, buttons)),
    element("form", { class: "card", novalidate: true, on: { submit: onSubmit } }, formPart, yamlPart, problems,
      element("div", { class: "group" }, element("button", { class: "main", id: "create" }, "Create"), check)));
  offerSizes(controls.get("size").input);
  controls.get("name").input.focus();
}

function control({ name, label, type = "text", help, options = [], required, inputmode }, value) {
  const attributes = { id: `field-${name}`, name, required, inputmode, "aria-describedby": `help-${name} error-${name}` };
  const error = element("div", { class: "error", id: `error-${name}` });
  let input = element(type === "select" || type === "textarea" ? type : "input", { autocomplete: "off", ...attributes });
  let content = input;
  if (type === "namespace") content = [input] = namespaceField(attributes);
  if (type === "textarea") input.rows = 4;
  input.append(...options.map(([option, text]) => element("option", { value: option }, text)));
  input.value = value;
  const row = element("div", { class: "field" }, element("label", { for: attributes.id }, label), content,
    element("div", { class: "help", id: `help-${name}` }, help ?? ""), error);
  return { input, error, row };
}

/// Without instance types, or without the right to list them, the size is given by hand.
async function offerSizes(select) {
  try {
    const { items } = await call("GET", INSTANCE_TYPES);
    select.append(...items.map(({ metadata, spec }) =>
      element("option", { value: metadata.name }, `${metadata.name} (${spec.cpu?.guest} CPU, ${spec.memory?.guest})`)));
  } catch (error) {
    if (error.code !== 403 && error.code !== 404) throw error;
  }
}

/// The namespace that YAML names in its metadata.
function namespaceIn(source) {
  const line = lineOf(source, "metadata.namespace");
  return source.split("\n")[line]?.match(/^\s+namespace:\s*["']?([a-z0-9.-]+)/)?.[1];
}
