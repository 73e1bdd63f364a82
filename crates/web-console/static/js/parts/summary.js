// The main facts of a VM.

import { element } from "../dom.js";
import { age } from "./age.js";
import { badge, statusOf } from "./status.js";

export function summary({ vm, vmi }) {
  const spec = vmi?.spec ?? vm?.spec.template?.spec;
  const cpu = vmi?.status?.currentCPUTopology ?? spec?.domain?.cpu;
  const cores = (cpu?.cores ?? 1) * (cpu?.sockets ?? 1) * (cpu?.threads ?? 1);
  const memory = vmi?.status?.memory?.guestCurrent ?? spec?.domain?.memory?.guest
    ?? spec?.domain?.resources?.requests?.memory;
  const os = vmi?.status?.guestOSInfo;
  const facts = {
    Status: badge(statusOf(vm, vmi)),
    "Run strategy": vm?.spec.runStrategy ?? (vm?.spec.running ? "Always" : vm && "Halted"),
    Node: vmi?.status?.nodeName,
    CPUs: spec?.domain?.cpu || vmi ? String(cores) : undefined,
    Memory: memory,
    "Instance type": vm?.spec.instancetype?.name,
    Preference: vm?.spec.preference?.name,
    "Guest system": os?.prettyName ?? os?.name,
    Created: age((vm ?? vmi)?.metadata.creationTimestamp) + " ago",
  };
  const present = Object.entries(facts).filter(([, fact]) => fact);
  return element("dl", {}, present.map(([name, fact]) => [element("dt", {}, name), element("dd", {}, fact)]));
}
