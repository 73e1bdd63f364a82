// Snapshots, restores and clones of a VM.

import { call } from "../api.js";
import { clone, KINDS, nameAt, ofVm, pathOf, restore, snapshot, stateOf } from "../copies.js";
import { element, fill, refresh } from "../dom.js";
import { live } from "../live.js";
import { age } from "../parts/age.js";
import { deleteButton } from "../parts/delete.js";
import { ask, confirm } from "../parts/dialog.js";
import { exportButton } from "../parts/exporting.js";
import { guard } from "../parts/guard.js";
import { byAge, listing } from "../parts/listing.js";
import { notify } from "../parts/notice.js";
import { yamlLink } from "../parts/yaml.js";

const WATCHED = [["snapshots", KINDS.snapshot], ["restores", KINDS.restore], ["clones", KINDS.clone]];

export function copies(main, { namespace, name }) {
  const state = {};
  const section = (label) => element("section", { class: "card", "aria-label": label });
  const parts = { snapshots: section("Snapshots"), restores: section("Restores"), clones: section("Clones") };
  const actions = { namespace, vm: name };

  function draw() {
    const objects = Object.fromEntries(WATCHED.map(([key]) => [key, state[key]?.objects ?? []]));
    const own = ofVm(name, objects);
    const part = (key, label, columns, row, empty) => {
      const list = { label, what: `${key} in namespace ${namespace}`, columns, row, empty };
      refresh(parts[key], element("h2", {}, label), listing(list, { ...state[key], objects: own[key].toSorted(byAge) }));
    };
    part("snapshots", "Snapshots", ["Name", "State", { name: "Of a guest", optional: true }, "Age", "Actions"],
      (one) => [one.metadata.name, stateOf(one), one.status?.indications?.join(", "),
        age(one.status?.creationTime ?? one.metadata.creationTimestamp), snapshotButtons(actions, one)], "No snapshots yet.");
    part("restores", "Restores", ["Name", { name: "Snapshot", optional: true }, "State", "Age", "Actions"],
      (one) => [one.metadata.name, one.spec.virtualMachineSnapshotName, stateOf(one), age(one.metadata.creationTimestamp),
        withYaml("restore", actions, one, removeButton(actions, KINDS.restore, one, "If it is complete, the VM stays as it is."))],
      "No restores.");
    part("clones", "Clones", ["Clone", "State", "Age", "Actions"],
      (one) => [targetLink(namespace, one), stateOf(one), age(one.metadata.creationTimestamp),
        withYaml("clone", actions, one, removeButton(actions, KINDS.clone, one, "A VM whose disks are complete stays."))],
      "No clones.");
  }

  for (const [key, kind] of WATCHED) state[key] = live(pathOf(kind, namespace), draw);
  draw();
  fill(main,
    element("div", { class: "bar" }, element("h1", { class: "grow" }, `Snapshots and clones of ${name}`),
      snapshotButton(actions), cloneButton(actions),
      element("a", { class: "button", href: `#/vm/${namespace}/${name}` }, "Back")),
    parts.snapshots, parts.restores, parts.clones);
  return () => Object.values(state).forEach(({ stop }) => stop());
}

function button({ namespace }, { group, plural }, verb, label, key, click) {
  const made = element("button", { type: "button", "data-key": key, "aria-label": key, on: { click } }, label);
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

function withYaml(kind, { namespace }, one, ...buttons) {
  return element("div", { class: "group" }, yamlLink(kind, namespace, one), buttons);
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
    exportButton(namespace, { source: "snapshot", of: from }), yamlLink("snapshot", namespace, one),
    removeButton(actions, KINDS.snapshot, one, "Its copies of the disks are deleted."));
}

function removeButton(actions, kind, { metadata: { name } }, text) {
  const { namespace } = actions;
  const right = { group: kind.group, resource: kind.plural, verb: "delete", namespace };
  return deleteButton({ name, ask: text, right, remove: () => call("DELETE", `${pathOf(kind, namespace)}/${name}`) });
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
