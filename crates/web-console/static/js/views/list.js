// All VMs with their status, live.

import { collection, VMIS, VMS } from "../api.js";
import { element, fill, refresh } from "../dom.js";
import { failureText } from "../live.js";
import { drawActions } from "../parts/actions.js";
import { age } from "../parts/age.js";
import { guard } from "../parts/guard.js";
import { namespaceField } from "../parts/namespace.js";
import { chooseNamespace, chosenNamespace } from "../parts/scope.js";
import { badge, isRunning, statusOf } from "../parts/status.js";
import { table } from "../parts/table.js";
import { percent, size } from "../parts/usage.js";
import { VERBS } from "../parts/verbs.js";
import { ownNamespace } from "../session.js";
import { followUsage } from "../usage.js";
import { watch } from "../watch.js";

const QUICK = VERBS.filter(({ name }) => ["start", "stop"].includes(name));

/// VMs, and VMIs that belong to none, in the order of their names.
export function machines(vms, vmis) {
  const all = new Map();
  const add = (object, role) => {
    const { namespace, name } = object.metadata;
    const key = `${namespace}/${name}`;
    all.set(key, { ...all.get(key), namespace, name, [role]: object });
  };
  for (const vm of vms) add(vm, "vm");
  for (const vmi of vmis) add(vmi, "vmi");
  return [...all.values()].sort((a, b) => `${a.namespace}/${a.name}`.localeCompare(`${b.namespace}/${b.name}`));
}

export function list(main) {
  const state = { vms: [], vmis: [], loaded: 0, usage: new Map() };
  let stop = () => {};
  const filter = element("input", {
    id: "filter", type: "search", placeholder: "Name or status; press / to type here", "aria-label": "Filter", on: { input: draw },
  });
  const namespace = namespaceField({
    id: "namespace", placeholder: "All namespaces", value: chosenNamespace(),
    on: { change: () => follow(namespace[0].value.trim()) },
  });
  const error = element("p", { class: "error", role: "alert" });
  const toCreate = element("div", {});
  const body = element("div", { class: "card", "aria-busy": "true" }, "Reading…");

  function draw() {
    const wanted = filter.value.trim().toLowerCase();
    const shown = machines(state.vms, state.vmis).filter(({ name, vm, vmi }) =>
      `${name} ${statusOf(vm, vmi)}`.toLowerCase().includes(wanted));
    const columns = ["Name", "Status", { name: "Namespace", optional: true }, { name: "Node", optional: true },
      "Address", { name: "CPU", optional: true }, { name: "Memory", optional: true }, { name: "Age", optional: true }, "Actions"];
    const isBusy = state.loaded < 2 && !error.textContent;
    const nothing = isBusy ? "Reading…" : error.textContent ? "The VMs could not be read."
      : wanted ? "No VM matches the filter." : "There is no VM here yet.";
    body.setAttribute("aria-busy", String(isBusy));
    const rows = shown.map((machine) => row(machine, state.usage.get(machine.vmi?.metadata.uid)));
    refresh(body, table("Virtual machines", columns, rows, nothing));
  }

  function follow(chosen, fallback) {
    stop();
    error.textContent = "";
    Object.assign(state, { vms: [], vmis: [], loaded: 0 });
    chooseNamespace(chosen);
    const right = { group: "kubevirt.io", resource: VMS, verb: "create", namespace: chosen || ownNamespace() };
    fill(toCreate, guard(element("a", { class: "button", href: "#/create", "data-key": "create" }, "Create"), right));
    const onError = (failure) => {
      if (failure?.code === 403 && !chosen && !fallback) {
        namespace[0].value = ownNamespace();
        follow(ownNamespace(), true);
      } else if (failure || !fallback) {
        const what = chosen ? `virtual machines in namespace ${chosen}` : "virtual machines";
        error.textContent = failure ? failureText(failure, what) : "";
        draw();
      }
    };
    const stops = [[VMS, "vms"], [VMIS, "vmis"]].map(([plural, key]) => {
      let first = true;
      const onObjects = (objects) => {
        state[key] = objects;
        if (first) state.loaded += 1;
        first = false;
        draw();
      };
      return watch(collection(plural, chosen), {}, { onObjects, onError });
    });
    stop = () => stops.forEach((one) => one());
    draw();
  }

  fill(main,
    element("div", { class: "bar" },
      element("h1", { class: "grow" }, "Virtual machines"),
      element("div", {}, element("label", { for: "namespace" }, "Namespace"), namespace),
      element("div", { class: "grow" }, element("label", { for: "filter" }, "Filter"), filter),
      toCreate),
    error, body);
  follow(namespace[0].value.trim());
  const stopUsage = followUsage(() => state.vmis.filter(isRunning), (usage) => ((state.usage = usage), draw()));
  return () => {
    stop();
    stopUsage();
  };
}

function row(machine, usage) {
  const { namespace, name, vm, vmi } = machine;
  const actions = element("div", { class: "group" });
  drawActions(actions, machine, QUICK);
  const link = { href: `#/vm/${namespace}/${name}`, "data-key": `vm/${namespace}/${name}` };
  return [
    element("a", link, name), badge(statusOf(vm, vmi)), namespace, vmi?.status?.nodeName,
    vmi?.status?.interfaces?.[0]?.ipAddress, usage && !usage.problem && percent(usage.millicores),
    usage && !usage.problem && size(usage.memory), age((vm ?? vmi).metadata.creationTimestamp), actions,
  ];
}
