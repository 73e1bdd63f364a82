// The operations on a VM, as data: when each applies, and its request.

import { collection, subresource, VMIS, VMS } from "../api.js";
import { isActive, isPaused, isRunning } from "./status.js";

const SUBRESOURCES = "subresources.kubevirt.io";

export const VERBS = [
  {
    name: "start", label: "Start", plural: VMS, done: "is starting",
    applies: ({ vm, vmi }) => vm && !isActive(vmi) && !vm.metadata.deletionTimestamp,
  },
  {
    name: "stop", label: "Stop", plural: VMS, done: "is stopping",
    applies: ({ vm, vmi }) => vm && (isActive(vmi) || vm.spec.runStrategy === "Always"),
    ask: "The guest is asked to shut down, and is switched off after its grace period.",
  },
  {
    name: "restart", label: "Restart", plural: VMS, done: "is restarting",
    applies: ({ vm, vmi }) => vm && isRunning(vmi),
    ask: "The guest is stopped and started again; what it holds in memory is lost.",
  },
  {
    name: "pause", label: "Pause", plural: VMIS, done: "is paused",
    applies: ({ vmi }) => isRunning(vmi) && !isPaused(vmi),
  },
  {
    name: "unpause", label: "Unpause", plural: VMIS, done: "runs again",
    applies: ({ vmi }) => isRunning(vmi) && isPaused(vmi),
  },
  {
    name: "softreboot", label: "Reboot", plural: VMIS, done: "was asked to reboot",
    applies: ({ vmi }) => isRunning(vmi) && !isPaused(vmi),
    ask: "The guest is asked to reboot, by its guest agent or the power button.",
  },
];

export const DELETE = {
  name: "delete", label: "Delete", done: "is being deleted",
  applies: ({ vm, vmi }) => !(vm ?? vmi)?.metadata.deletionTimestamp,
  ask: "The VM and its guest are deleted. Volumes of their own, such as claims, stay.",
};

/// The request of a verb for a VM: method and path.
export function requestOf(verb, { namespace, name, vm }) {
  if (verb === DELETE) {
    return ["DELETE", `${collection(vm ? VMS : VMIS, namespace)}/${name}`];
  }
  return ["PUT", subresource(verb.plural, { namespace, name }, verb.name)];
}

/// The right that a verb needs, as `resourceAttributes`.
export function rightOf(verb, { namespace, name, vm }) {
  if (verb === DELETE) {
    return { group: "kubevirt.io", resource: vm ? VMS : VMIS, verb: "delete", namespace, name };
  }
  return { group: SUBRESOURCES, resource: verb.plural, subresource: verb.name, verb: "update", namespace, name };
}
