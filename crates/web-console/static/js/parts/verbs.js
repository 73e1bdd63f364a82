// The operations on a VM, as data: when each applies, what it asks for, and its request.

import { collection, subresource, SUBRESOURCES, VMIS, VMS } from "../api.js";
import { MIGRATE_GUEST } from "../migrations.js";
import { claims } from "../names.js";
import { condition, isActive, isPaused, isRunning, isSuspended } from "./status.js";

export const VERBS = [
  {
    name: "start", label: "Start", plural: VMS, done: "is starting",
    applies: ({ vm, vmi }) => vm && !isActive(vmi) && !vm.metadata.deletionTimestamp && !isSuspended(vm),
  },
  {
    name: "resume", label: "Resume", plural: VMS, done: "goes on where it was",
    applies: ({ vm }) => isSuspended(vm) && !vm.metadata.deletionTimestamp,
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
    name: "migrate", label: "Migrate", plural: VMS, done: "is moving to another pod",
    applies: ({ vm, vmi }) => vm && isRunning(vmi) && condition(vmi, "LiveMigratable")?.status === "True",
    ask: "The guest moves to another pod, on another node if there is one, while it runs.",
  },
  MIGRATE_GUEST,
];

/// Those that are needed rarely.
export const MORE = [
  {
    name: "suspend", label: "Suspend", plural: VMS, done: "is being suspended",
    applies: ({ vm, vmi }) => vm && isRunning(vmi),
    ask: "The memory of the guest is saved to a claim, and its pod ends. Resume lets it go on from there.",
  },
  {
    name: "discard", label: "Discard memory", plural: VMS, call: "resume", done: "has no saved memory any more",
    applies: ({ vm }) => isSuspended(vm) && !vm.metadata.deletionTimestamp,
    ask: "The saved memory is deleted. The guest begins anew, as after a power cut, if its run strategy says so.",
    body: () => ({ discardState: true }),
  },
  {
    name: "softreboot", label: "Reboot", plural: VMIS, done: "was asked to reboot",
    applies: ({ vmi }) => isRunning(vmi) && !isPaused(vmi),
    ask: "The guest is asked to reboot, by its guest agent or the power button.",
  },
  {
    name: "reset", label: "Reset", plural: VMIS, done: "was reset",
    applies: ({ vmi }) => isRunning(vmi),
    ask: "The guest begins anew at once, as by a reset button; what it has not written is lost.",
  },
  {
    name: "poweroff", label: "Switch off", plural: VMS, call: "stop", done: "is switched off",
    applies: ({ vm, vmi }) => vm && isActive(vmi),
    ask: "The guest is switched off at once; what it has not written is lost.",
    body: () => ({ gracePeriod: 0 }),
  },
  {
    name: "memorydump", label: "Dump memory", plural: VMS, done: "writes its memory to the claim",
    applies: ({ vm, vmi }) => vm && isRunning(vmi) && !vm.status?.memoryDumpRequest,
    ask: "The memory of the guest is written to a claim, which must be larger than the memory.",
    fields: ({ namespace }) => [{ name: "claimName", label: "Claim", suggest: () => claims(namespace) }],
    body: ({ claimName }) => ({ claimName }),
  },
  {
    name: "removememorydump", label: "Release dump", plural: VMS, done: "releases the claim of its dump",
    applies: ({ vm }) => vm?.status?.memoryDumpRequest,
    ask: "The VM no longer uses the claim of its memory dump. The claim and the dump stay.",
  },
];

export const DELETE = {
  name: "delete", label: "Delete", done: "is being deleted",
  applies: ({ vm, vmi }) => !(vm ?? vmi)?.metadata.deletionTimestamp,
  ask: "The VM and its guest are deleted. Volumes of their own, such as claims, stay.",
};

export const ATTACH = {
  name: "addvolume", label: "Attach a claim", done: "gets the volume",
  applies: ({ vm, vmi }) => (vm ? !vm.metadata.deletionTimestamp : isRunning(vmi)),
  ask: "The claim becomes a disk of the VM, at once if the guest runs.",
  fields: ({ namespace }) => [
    { name: "claimName", label: "Claim", suggest: () => claims(namespace) },
    { name: "bus", label: "Bus", options: ["virtio", "scsi", "sata"] },
  ],
  body: ({ claimName, bus }) => ({
    name: claimName,
    disk: { disk: { bus }, serial: claimName },
    volumeSource: { persistentVolumeClaim: { claimName, hotpluggable: true } },
  }),
};

/// Takes a volume away that was attached.
export function detach(volume) {
  return {
    name: "removevolume", label: "Detach", of: volume, done: `loses the volume ${volume}`,
    applies: () => true,
    ask: "The guest loses the disk; unmount it there first. The claim stays.",
    body: () => ({ name: volume }),
  };
}

/// The request of a verb for a VM: method and path.
export function requestOf(verb, { namespace, name, vm }) {
  if (verb.create) return ["POST", collection(verb.create, namespace)];
  if (verb === DELETE) {
    return ["DELETE", `${collection(vm ? VMS : VMIS, namespace)}/${name}`];
  }
  return ["PUT", subresource(pluralOf(verb, vm), { namespace, name }, verb.call ?? verb.name)];
}

/// The right that a verb needs, as `resourceAttributes`.
export function rightOf(verb, { namespace, name, vm }) {
  if (verb.create) return { group: "kubevirt.io", resource: verb.create, verb: "create", namespace };
  if (verb === DELETE) {
    return { group: "kubevirt.io", resource: vm ? VMS : VMIS, verb: "delete", namespace, name };
  }
  const resource = pluralOf(verb, vm);
  return { group: SUBRESOURCES, resource, subresource: verb.call ?? verb.name, verb: "update", namespace, name };
}

/// A verb without a plural changes the VM, or a VMI that has none.
function pluralOf(verb, vm) {
  return verb.plural ?? (vm ? VMS : VMIS);
}
