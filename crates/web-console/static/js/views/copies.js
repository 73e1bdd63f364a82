// Snapshots, restores and clones of a VM.

import { call } from "../api.js";
import { clone, KINDS, nameAt, ofVm, pathOf, restore, snapshot, stateOf } from "../copies.js";
import { element, fill, refresh } from "../dom.js";
import { age } from "../parts/age.js";
import { ask, confirm } from "../parts/dialog.js";
import { guard } from "../parts/guard.js";
import { notify } from "../parts/notice.js";
import { table } from "../parts/table.js";
import { watch } from "../watch.js";

const WATCHED = [["snapshots", KINDS.snapshot], ["restores", KINDS.restore], ["clones", KINDS.clone]];

export function copies(main, { namespace, name }) {
  const state = { snapshots: [], restores: [], clones: [], failures: {} };
  const section = (label) => element("section", { class: "card", "aria-label": label });
  const parts = { snapshots: section("Snapshots"), restores: section("Restores"), clones: section("Clones") };
  const error = element("p", { class: "error", role: "alert" });
  const actions = { namespace, vm: name };

  function draw() {
    error.textContent = [...new Set(Object.values(state.failures).filter(Boolean))].join(" ");
    const own = ofVm(name, state);
    const part = (key, label, columns, rows, empty) =>
      refresh(parts[key], element("h2", {}, label), table(label, columns, own[key].toSorted(newest).map(rows), empty));
    part("snapshots", "Snapshots", ["Name", "State", { name: "Of a guest", optional: true }, "Age", "Actions"],
      (one) => [one.metadata.name, stateOf(one), one.status?.indications?.join(", "),
        age(one.status?.creationTime ?? one.metadata.creationTimestamp), snapshotButtons(actions, one)], "No snapshots yet.");
    part("restores", "Restores", ["Name", { name: "Snapshot", optional: true }, "State", "Age", "Actions"],
      (one) => [one.metadata.name, one.spec.virtualMachineSnapshotName, stateOf(one), age(one.metadata.creationTimestamp),
        deleteButton(actions, KINDS.restore, one, "If it is complete, the VM stays as it is.")], "No restores.");
    part("clones", "Clones", ["Clone", "State", "Age", "Actions"],
      (one) => [targetLink(namespace, one), stateOf(one), age(one.metadata.creationTimestamp),
        deleteButton(actions, KINDS.clone, one, "A VM whose disks are complete stays.")],
      "No clones.");
  }

  const stops = WATCHED.map(([key, kind]) => watch(pathOf(kind, namespace), {}, {
    onError: (failure) => ((state.failures[key] = failure?.message), draw()),
    onObjects: (objects) => ((state[key] = objects), draw()),
  }));
  fill(main,
    element("div", { class: "bar" }, element("h1", { class: "grow" }, `Snapshots and clones of ${name}`),
      snapshotButton(actions), cloneButton(actions),
      element("a", { class: "button", href: `#/vm/${namespace}/${name}` }, "Back")),
    error, parts.snapshots, parts.restores, parts.clones);
  return () => stops.forEach((stop) => stop());
}

function newest(one, other) {
  return other.metadata.creationTimestamp.localeCompare(one.metadata.creationTimestamp);
}

function button({ namespace }, { group, plural }, verb, label, key, click) {
  const made = element("button", { type: "button", "data-key": key, class: verb === "delete" ? "danger" : undefined,
    "aria-label": key, on: { click } }, label);
  return guard(made, { group, resource: plural, verb, namespace });
}

function snapshotButton(actions) {
  const { namespace, vm } = actions;
  const click = () => ask({
    title: `Take a snapshot of ${vm}`, action: "Take",
    text: "The disks as they are now, and the settings. The guest may run; it is held still for a moment.",
    fields: [{ name: "name", label: "Name", value: nameAt(vm, new Date()) }],
    submit: ({ name }) => post(KINDS.snapshot, namespace, snapshot({ namespace, vm, name })),
  });
  return button(actions, KINDS.snapshot, "create", "Take a snapshot", `Take a snapshot of ${vm}`, click);
}

function cloneButton(actions, from) {
  const { namespace, vm } = actions;
  const click = async () => {
    const isDone = await ask({
      title: `Clone ${from ?? vm}`, action: "Clone",
      text: "A new VM with copies of the disks and an identity of its own. It is not started.",
      fields: [{ name: "target", label: "Name of the new VM", value: `${vm}-copy` }],
      submit: ({ target }) => post(KINDS.clone, namespace, clone({ namespace, vm, from, target, now: new Date() })),
    });
    if (isDone) notify(`The clone of ${from ?? vm} is being made.`);
  };
  return button(actions, KINDS.clone, "create", "Clone", `Clone ${from ?? vm}`, click);
}

function snapshotButtons(actions, { metadata: { name: from } }) {
  const { namespace, vm } = actions;
  const click = async () => {
    const text = "The VM is stopped; its settings and disks become those of the snapshot. What was written since is lost.";
    if (!(await confirm({ title: `Restore ${from}?`, text, action: "Restore" }))) return;
    await tell(`Restore ${from}`, () => post(KINDS.restore, namespace, restore({ namespace, vm, from, now: new Date() })));
  };
  const one = { metadata: { name: from } };
  return element("div", { class: "group" },
    button(actions, KINDS.restore, "create", "Restore", `Restore ${from}`, click), cloneButton(actions, from),
    deleteButton(actions, KINDS.snapshot, one, "Its copies of the disks are deleted."));
}

function deleteButton(actions, kind, { metadata: { name } }, text) {
  const click = async () => {
    if (!(await confirm({ title: `Delete ${name}?`, text, action: "Delete" }))) return;
    await tell(`Delete ${name}`, () => call("DELETE", `${pathOf(kind, actions.namespace)}/${name}`));
  };
  return button(actions, kind, "delete", "Delete", `Delete ${name}`, click);
}

/// Shows why something failed; what succeeds shows in the tables.
async function tell(what, run) {
  try {
    await run();
  } catch (error) {
    notify(`${what}: ${error.message}`, "bad");
  }
}

function targetLink(namespace, { spec, status }) {
  const target = status?.targetName ?? spec.target?.name;
  return target ? element("a", { href: `#/vm/${namespace}/${target}`, "data-key": target }, target) : "";
}

function post(kind, namespace, body) {
  return call("POST", pathOf(kind, namespace), { query: { fieldValidation: "Strict" }, body: JSON.stringify(body) });
}
