// Shows an object as YAML, and changes it. The server checks it; its errors have their lines.

import { call } from "../api.js";
import { faults, lineOf } from "../create/place.js";
import { sourceField } from "../create/source.js";
import { yaml } from "../create/yaml.js";
import { element, fill } from "../dom.js";
import { OBJECTS } from "../objects.js";
import { guard } from "../parts/guard.js";
import { notify } from "../parts/notice.js";

const CONFLICT = "It was changed meanwhile. Read it again and repeat your change; what is typed here is lost then.";

/// What a user may change, without the status and the bookkeeping of the server.
export function editable({ status, metadata: { managedFields, ...metadata }, ...rest }) {
  return { ...rest, metadata };
}

/// Whether two versions of an object differ in nothing that a user may change.
export function isSame(one, other) {
  const shown = (object) => {
    const { metadata, ...rest } = editable(object);
    return JSON.stringify({ ...rest, metadata: { ...metadata, resourceVersion: undefined } });
  };
  return shown(one) === shown(other);
}

/// `kind` is a key of `OBJECTS`.
export function edit(main, { kind = "vm", namespace, name }) {
  const { kind: label, group, resource, path: pathOf, home, saved = "" } = OBJECTS[kind];
  const path = `${pathOf(namespace)}/${name}`;
  const source = sourceField(label);
  const problems = element("ul", { id: "problems", class: "error", role: "alert" });
  const save = element("button", { class: "main", id: "save", disabled: true }, "Save");
  const check = element("button", { type: "button", id: "check", disabled: true, on: { click: () => submit({ dryRun: true }) } }, "Check");
  const again = element("button", { type: "button", id: "again", hidden: true, on: { click: read } }, "Read again");
  const back = element("a", { class: "button", href: kind === "vm" ? `#/vm/${namespace}/${name}` : "#/" }, "Back");
  let opened;

  function clear() {
    fill(problems);
    again.hidden = true;
    source.area.removeAttribute("aria-invalid");
  }

  async function read() {
    clear();
    source.area.setAttribute("aria-busy", "true");
    try {
      opened = await call("GET", path);
      source.area.value = yaml(editable(opened));
      back.setAttribute("href", home(opened));
      check.disabled = false;
      save.disabled = false;
      for (const one of [save, check]) guard(one, { group, resource, verb: "update", namespace, name });
    } catch (error) {
      show(error);
    } finally {
      source.area.removeAttribute("aria-busy");
    }
  }

  /// Most new versions are a new status: takes over the version if nothing else has changed.
  async function takeOver() {
    const current = await call("GET", path);
    const line = lineOf(source.area.value, "metadata.resourceVersion");
    const isNewer = current.metadata.resourceVersion !== opened.metadata.resourceVersion;
    if (line < 0 || !isNewer || !isSame(current, opened)) return false;
    const lines = source.area.value.split("\n");
    lines[line] = `  resourceVersion: ${JSON.stringify(current.metadata.resourceVersion)}`;
    source.area.value = lines.join("\n");
    opened = current;
    return true;
  }

  async function put(query) {
    for (;;) {
      try {
        return await call("PUT", path, { query, body: source.area.value, type: "application/yaml" });
      } catch (error) {
        if (error.code !== 409 || !(await takeOver())) throw error;
      }
    }
  }

  async function submit({ dryRun }) {
    clear();
    try {
      await put({ fieldValidation: "Strict", ...(dryRun && { dryRun: "All" }) });
      if (dryRun) return notify("The server accepts this change.");
      notify(`${namespace}/${name} is saved.${saved}`);
      location.hash = home(opened);
    } catch (error) {
      show(error);
    }
  }

  function show(error) {
    const found = faults(error);
    again.hidden = error.code !== 409;
    if (error.code === 409) fill(problems, element("li", {}, CONFLICT));
    else if (found.length === 0) fill(problems, element("li", {}, error.message));
    else fill(problems, found.map(source.atLine));
  }

  const onSubmit = (event) => (event.preventDefault(), submit({ dryRun: false }));
  fill(main,
    element("div", { class: "bar" }, element("h1", { class: "grow" }, kind === "vm" ? `Edit ${name}` : `${label} ${name}`), back),
    element("form", { class: "card", novalidate: true, on: { submit: onSubmit } }, source.part, problems,
      element("div", { class: "group" }, save, check, again)));
  read().then(() => source.area.focus());
}
