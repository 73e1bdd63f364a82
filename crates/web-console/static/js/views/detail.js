// Everything about one VM.

import { collection, VMIS, VMS } from "../api.js";
import { yaml } from "../create/yaml.js";
import { element, fill } from "../dom.js";
import { drawActions } from "../parts/actions.js";
import { conditions } from "../parts/conditions.js";
import { events } from "../parts/events.js";
import { interfaces } from "../parts/interfaces.js";
import { badge, isRunning, statusOf } from "../parts/status.js";
import { summary } from "../parts/summary.js";
import { volumes } from "../parts/volumes.js";
import { followWhy } from "../parts/why.js";
import { watch } from "../watch.js";

export function detail(main, { namespace, name }) {
  const state = { events: [], failures: {} };
  const section = (label) => element("section", { class: "card", "aria-label": label });
  const parts = {
    title: element("h1", {}), status: element("span", { role: "status" }), links: element("div", { class: "group" }),
    actions: element("div", { class: "group", role: "group", "aria-label": "Actions" }),
    summary: section("Summary"), why: section("Why"), conditions: section("Conditions"), volumes: section("Disks"),
    interfaces: section("Networks"), events: section("Events"), object: section("Object"),
  };
  const error = element("p", { class: "error", role: "alert" });
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
  }

  function draw() {
    const { vm, vmi } = state;
    if (!vm && !vmi) {
      const all = "vm" in state && "vmi" in state;
      state.failures.absent = all && `There is no VM ${name} in namespace ${namespace}.`;
      return drawFailures();
    }
    state.failures.absent = undefined;
    drawFailures();
    const spec = vmi?.spec ?? vm.spec.template?.spec;
    const machine = { namespace, name, vm, vmi };
    const status = statusOf(vm, vmi);
    if (parts.status.textContent !== status) fill(parts.status, badge(status));
    drawActions(parts.actions, machine);
    fill(parts.summary, element("h2", {}, "Summary"), summary(machine));
    fill(parts.conditions, element("h2", {}, "Conditions"),
      conditions([{ kind: "VM", object: vm }, { kind: "VMI", object: vmi }]));
    fill(parts.volumes, element("h2", {}, "Disks"), volumes(spec, vmi));
    fill(parts.interfaces, element("h2", {}, "Networks"), interfaces(spec, vmi));
    fill(parts.events, element("h2", {}, "Events"), events(state.events));
    const link = (view, label) =>
      element("a", { class: "button", href: `#/${view}/${namespace}/${name}`, "data-key": view }, label);
    fill(parts.links, isRunning(vmi) && [link("console", "Console"),
      vmi.spec.domain.devices?.autoattachGraphicsDevice !== false && link("screen", "Screen")]);
    drawObject();
    askWhy();
  }

  /// Each watch fails and recovers by itself.
  const onErrorOf = (key) => (failure) => {
    state.failures[key] = failure?.message;
    drawFailures();
  };
  const one = { fieldSelector: `metadata.name=${name}` };
  const about = { fieldSelector: `involvedObject.name=${name}` };
  const stops = [
    watch(collection(VMS, namespace), one, { onError: onErrorOf("vm"), onObjects: ([vm]) => ((state.vm = vm), draw()) }),
    watch(collection(VMIS, namespace), one, { onError: onErrorOf("vmi"), onObjects: ([vmi]) => ((state.vmi = vmi), draw()) }),
    watch(`/api/v1/namespaces/${namespace}/events`, about, {
      onError: onErrorOf("events"), onObjects: (list) => ((state.events = list), draw()),
    }),
  ];

  parts.title.textContent = name;
  fill(main,
    element("div", { class: "bar" }, parts.title, parts.status,
      element("span", { class: "grow help" }, namespace), parts.links, parts.actions),
    error, parts.why,
    element("div", { class: "columns" }, parts.summary, parts.interfaces),
    parts.volumes, parts.conditions, parts.events, parts.object);
  return () => stops.forEach((stop) => stop());
}
