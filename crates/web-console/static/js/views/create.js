// Creates a VM, from a form or from YAML. The server checks it; its errors are shown at their fields.

import { call, collection, VMS } from "../api.js";
import { control, offer } from "../create/controls.js";
import { emptyForm } from "../create/examples.js";
import { fieldOf, FIELDS } from "../create/fields.js";
import { vmOf } from "../create/object.js";
import { faults, lineOf } from "../create/place.js";
import { choicesOf, choosesBus, resultOf, sizeText } from "../create/sizes.js";
import { sourceField } from "../create/source.js";
import { yaml } from "../create/yaml.js";
import { element, fill } from "../dom.js";
import { choicesIn } from "../networks.js";
import { guardAgain } from "../parts/guard.js";
import { notify } from "../parts/notice.js";

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
  const result = element("p", { role: "status", id: "result" });
  controls.get("memory").row.after(result);
  const offered = { size: [], preference: [] };
  const chosen = (family) => offered[family].flatMap(({ choices }) => choices)
    .find(({ value }) => value === controls.get(family).input.value);
  const read = () => ({
    ...Object.fromEntries([...controls].map(([name, { read: value }]) => [name, value()])),
    hasBus: choosesBus(chosen("preference")),
  });
  let isYaml = false;

  /// The CPUs and memory of the VM; with an instance type the fields for them have no effect.
  function drawResult() {
    const size = chosen("size");
    for (const name of ["cores", "memory"]) controls.get(name).row.hidden = Boolean(size);
    const { sentence, problem } = resultOf({ ...read(), size, preference: chosen("preference") });
    fill(result, sentence, problem && element("span", { class: "error" }, ` ${problem}`));
  }

  /// What the namespace and the cluster offer. Without the right to list it, the fields stay as they are.
  async function offerChoices() {
    const namespace = controls.get("namespace").input.value.trim();
    if (!namespace) return;
    const [size, preference, networks] = await Promise.all([
      choicesOf("size", namespace), choicesOf("preference", namespace), choicesIn(namespace),
    ]);
    if (namespace !== controls.get("namespace").input.value.trim()) return;
    Object.assign(offered, { size, preference });
    offer(controls.get("size").input, size, sizeText);
    offer(controls.get("preference").input, preference, ({ name }) => name);
    const { input, row } = controls.get("networks");
    fill(input, networks.map(([name, text]) => element("option", { value: name }, text)));
    row.hidden = networks.length === 0;
    drawResult();
  }

  /// The namespace of the form counts, from which the YAML begins.
  function guardButtons() {
    const namespace = controls.get("namespace").input.value.trim();
    if (!namespace) return;
    const right = { group: "kubevirt.io", resource: VMS, verb: "create", namespace };
    for (const one of [make, check]) guardAgain(one, right);
  }

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
  const make = element("button", { class: "main", id: "create" }, "Create");
  const onSubmit = (event) => (event.preventDefault(), submit({ dryRun: false }));
  fill(main,
    element("div", { class: "bar" }, element("h1", { class: "grow" }, "Create a VM"),
      element("div", { class: "group", role: "tablist", "aria-label": "Input" }, buttons)),
    element("form", { class: "card", novalidate: true, on: { submit: onSubmit } }, formPart, yamlPart, problems,
      element("div", { class: "group" }, make, check)));
  controls.get("networks").row.hidden = true;
  controls.get("namespace").input.addEventListener("change", () => {
    tryToOffer();
    guardButtons();
  });
  formPart.addEventListener("input", drawResult);
  const tryToOffer = () => offerChoices().catch(({ message }) => fill(problems, element("li", {}, message)));
  tryToOffer();
  guardButtons();
  drawResult();
  controls.get("name").input.focus();
}

/// The namespace that YAML names in its metadata.
function namespaceIn(source) {
  const line = lineOf(source, "metadata.namespace");
  return source.split("\n")[line]?.match(/^\s+namespace:\s*["']?([a-z0-9.-]+)/)?.[1];
}
