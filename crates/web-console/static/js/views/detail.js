// Everything about one VM.

import { collection, SUBRESOURCES, VMIS, VMS } from "../api.js";
import { SNAPSHOTS } from "../copies.js";
import { yaml } from "../create/yaml.js";
import { element, fill, refresh } from "../dom.js";
import { live } from "../live.js";
import { MIGRATIONS } from "../migrations.js";
import { drawActions, verbButton } from "../parts/actions.js";
import { conditions } from "../parts/conditions.js";
import { events } from "../parts/events.js";
import { exportButton } from "../parts/exporting.js";
import { guard } from "../parts/guard.js";
import { interfaces } from "../parts/interfaces.js";
import { migrations } from "../parts/migrations.js";
import { badge, isRunning, statusOf } from "../parts/status.js";
import { sizeOf, summary } from "../parts/summary.js";
import { figures } from "../parts/usage.js";
import { ATTACH, DELETE, MORE, VERBS } from "../parts/verbs.js";
import { volumes } from "../parts/volumes.js";
import { followWhy } from "../parts/why.js";
import { followUsage } from "../usage.js";
import { watch } from "../watch.js";

export function detail(main, { namespace, name }) {
  const state = { failures: {}, usage: new Map() };
  // Only a guest moves, and browsers open few connections: migrations are followed once there is one.
  let moves;
  const section = (label) => element("section", { class: "card", "aria-label": label });
  const parts = {
    title: element("h1", {}), status: element("span", { role: "status" }), links: element("div", { class: "group" }),
    actions: element("div", { class: "group", role: "group", "aria-label": "Actions" }),
    more: element("div", { class: "group menu", role: "group", "aria-label": "More actions" }),
    usage: section("Usage"), summary: section("Summary"), why: section("Why"), conditions: section("Conditions"),
    volumes: section("Disks"), migrations: section("Migrations"),
    interfaces: section("Networks"), events: section("Events"), object: section("Object"),
  };
  const error = element("p", { class: "error", role: "alert" });
  const reading = element("p", { class: "empty", role: "status", "aria-busy": "true" }, "Reading…");
  const content = element("div", { hidden: true });
  const others = element("details", { class: "more", hidden: true }, element("summary", { class: "button" }, "More"), parts.more);
  // Before the button opens a dialog, which gives the focus back when it closes.
  parts.more.addEventListener("click", () => {
    others.open = false;
    others.firstElementChild.focus();
  }, true);
  const text = element("pre", { tabindex: "0" });
  const object = element("details", {}, element("summary", {}, "YAML"), text);
  fill(parts.object, object);
  object.addEventListener("toggle", drawObject);
  const askWhy = followWhy(parts.why, { namespace, name });

  function drawObject() {
    const shown = state.vm ?? state.vmi;
    if (!object.open || !shown) return;
    const { managedFields, ...metadata } = shown.metadata;
    text.textContent = yaml({ ...shown, metadata });
  }

  function drawFailures() {
    error.textContent = Object.values(state.failures).filter(Boolean).join(" ");
    reading.hidden = Boolean(error.textContent || state.vm || state.vmi);
  }

  function draw() {
    const { vm, vmi } = state;
    // Whether there is a VM decides what the buttons change.
    if (vmi && !("vm" in state) && !state.failures.vm) return;
    if (!vm && !vmi) {
      const all = "vm" in state && "vmi" in state;
      state.failures.absent = all && `There is no VM ${name} in namespace ${namespace}.`;
      content.hidden = true;
      return drawFailures();
    }
    content.hidden = false;
    state.failures.absent = undefined;
    drawFailures();
    const spec = vmi?.spec ?? vm.spec.template?.spec;
    const machine = { namespace, name, vm, vmi };
    const part = (section, label, ...content) => refresh(section, element("h2", {}, label), ...content);
    refresh(parts.status, badge(statusOf(vm, vmi)));
    drawActions(parts.actions, machine, [...VERBS, DELETE]);
    others.hidden = drawActions(parts.more, machine, MORE) === 0;
    part(parts.summary, "Summary", summary(machine));
    part(parts.conditions, "Conditions", conditions([{ kind: "VM", object: vm }, { kind: "VMI", object: vmi }]));
    part(parts.volumes, "Disks", volumes(machine),
      element("div", { class: "group" }, ATTACH.applies(machine) && verbButton(ATTACH, machine),
        vm && exportButton(namespace, { of: name })));
    part(parts.interfaces, "Networks", interfaces(spec, vmi));
    drawEvents();
    drawMoves();
    refresh(parts.links, links(machine));
    drawUsage();
    drawObject();
    askWhy();
  }

  function drawEvents() {
    refresh(parts.events, element("h2", {}, "Events"), events(happened, namespace));
  }

  function drawMoves() {
    if (isRunning(state.vmi)) moves ??= live(collection(MIGRATIONS, namespace), drawMoves);
    parts.migrations.hidden = !moves;
    if (moves) refresh(parts.migrations, element("h2", {}, "Migrations"), migrations({ namespace, name }, moves));
  }

  function drawUsage() {
    const { vm, vmi } = state;
    parts.usage.hidden = !isRunning(vmi);
    if (parts.usage.hidden) return;
    refresh(parts.usage, element("h2", {}, "Usage"), figures(state.usage.get(vmi.metadata.uid), sizeOf({ vm, vmi })));
  }

  /// Each watch fails and recovers by itself.
  const onErrorOf = (key) => (failure) => {
    state.failures[key] = failure?.message;
    draw();
  };
  const one = { fieldSelector: `metadata.name=${name}` };
  const about = { fieldSelector: `involvedObject.name=${name}` };
  const happened = live(`/api/v1/namespaces/${namespace}/events`, () => {
    drawEvents();
    askWhy();
  }, about);
  const stops = [
    watch(collection(VMS, namespace), one, { onError: onErrorOf("vm"), onObjects: ([vm]) => ((state.vm = vm), draw()) }),
    watch(collection(VMIS, namespace), one, { onError: onErrorOf("vmi"), onObjects: ([vmi]) => ((state.vmi = vmi), draw()) }),
    followUsage(() => (isRunning(state.vmi) ? [state.vmi] : []), (usage) => ((state.usage = usage), drawUsage())),
    happened.stop, () => moves?.stop(),
  ];

  parts.title.textContent = name;
  fill(main,
    element("div", { class: "bar" }, parts.title, parts.status,
      element("span", { class: "grow help" }, namespace), parts.links, parts.actions, others),
    error, reading, fill(content, parts.why, parts.usage,
      element("div", { class: "columns" }, parts.summary, parts.interfaces),
      parts.migrations, parts.volumes, parts.conditions, parts.events, parts.object));
  return () => stops.forEach((stop) => stop());
}

/// Links to the other views of the VM.
function links({ namespace, name, vm, vmi }) {
  const link = (view, label, right) =>
    guard(element("a", { class: "button", href: `#/${view}/${namespace}/${name}`, "data-key": view }, label),
      { namespace, name, ...right });
  const stream = (subresource) => ({ group: SUBRESOURCES, resource: VMIS, subresource, verb: "get" });
  const hasScreen = vmi?.spec.domain.devices?.autoattachGraphicsDevice !== false;
  return [
    isRunning(vmi) && link("console", "Console", stream("console")),
    isRunning(vmi) && hasScreen && link("screen", "Screen", stream("vnc")),
    vm && link("edit", "Edit", { group: "kubevirt.io", resource: VMS, verb: "update" }),
    vm && link("copies", "Snapshots", { group: SNAPSHOTS, resource: "virtualmachinesnapshots", verb: "list", name: undefined }),
  ];
}
