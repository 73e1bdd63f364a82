// The main facts of a VM.

import { element } from "../dom.js";
import { age } from "./age.js";
import { badge, statusOf } from "./status.js";

/// The number of CPUs and the memory of a guest, as far as they are known.
export function sizeOf({ vm, vmi }) {
  const spec = vmi?.spec ?? vm?.spec.template?.spec;
  const cpu = vmi?.status?.currentCPUTopology ?? spec?.domain?.cpu;
  const cores = (cpu?.cores ?? 1) * (cpu?.sockets ?? 1) * (cpu?.threads ?? 1);
  const memory = vmi?.status?.memory?.guestCurrent ?? spec?.domain?.memory?.guest
    ?? spec?.domain?.resources?.requests?.memory;
  return { cores, memory };
}

export function summary({ vm, vmi }) {
  const spec = vmi?.spec ?? vm?.spec.template?.spec;
  const { cores, memory } = sizeOf({ vm, vmi });
  const os = vmi?.status?.guestOSInfo;
  const facts = {
    Status: badge(statusOf(vm, vmi)),
    "Run strategy": vm?.spec.runStrategy ?? (vm?.spec.running ? "Always" : vm && "Halted"),
    Node: vmi?.status?.nodeName,
    Migration: migration(vmi?.status?.migrationState),
    CPUs: spec?.domain?.cpu || vmi ? String(cores) : undefined,
    Memory: memory,
    "Instance type": vm?.spec.instancetype?.name,
    Preference: vm?.spec.preference?.name,
    "Guest system": os?.prettyName ?? os?.name,
    "Memory dump": dump(vm?.status?.memoryDumpRequest),
    Created: age((vm ?? vmi)?.metadata.creationTimestamp) + " ago",
  };
  const present = Object.entries(facts).filter(([, fact]) => fact);
  return element("dl", {}, present.map(([name, fact]) => [element("dt", {}, name), element("dd", {}, fact)]));
}

function migration(state) {
  if (!state) return undefined;
  const result = state.failed ? "failed" : state.completed ? "done" : "under way";
  const nodes = [state.sourceNode, state.targetNode].filter(Boolean).join(" → ");
  return [nodes, result, state.failureReason].filter(Boolean).join(", ");
}

function dump(request) {
  return request && [request.phase, `claim ${request.claimName}`, request.message].filter(Boolean).join(", ");
}
