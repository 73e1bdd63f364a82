// Snapshots, restores and clones: their collections, and the objects that the page creates.

export const SNAPSHOTS = "snapshot.kubevirt.io";
export const CLONES = "clone.kubevirt.io";

const VERSION = "v1beta1";
const VM = { apiGroup: "kubevirt.io", kind: "VirtualMachine" };

export const KINDS = {
  snapshot: { group: SNAPSHOTS, kind: "VirtualMachineSnapshot", plural: "virtualmachinesnapshots" },
  restore: { group: SNAPSHOTS, kind: "VirtualMachineRestore", plural: "virtualmachinerestores" },
  clone: { group: CLONES, kind: "VirtualMachineClone", plural: "virtualmachineclones" },
};

export function pathOf({ group, plural }, namespace) {
  return `/apis/${group}/${VERSION}/namespaces/${namespace}/${plural}`;
}

function object({ group, kind }, namespace, name, spec) {
  return { apiVersion: `${group}/${VERSION}`, kind, metadata: { namespace, name }, spec };
}

export function snapshot({ namespace, vm, name }) {
  return object(KINDS.snapshot, namespace, name, { source: { ...VM, name: vm } });
}

/// Brings a snapshot back to its VM, which is stopped for it.
export function restore({ namespace, vm, from, now }) {
  const name = nameAt(from, now);
  return object(KINDS.restore, namespace, name,
    { target: { ...VM, name: vm }, virtualMachineSnapshotName: from, targetReadinessPolicy: "StopTarget" });
}

/// A new VM of a VM, or of a snapshot.
export function clone({ namespace, vm, from, target, now }) {
  const source = from ? { apiGroup: SNAPSHOTS, kind: KINDS.snapshot.kind, name: from } : { ...VM, name: vm };
  return object(KINDS.clone, namespace, nameAt(target, now), { source, target: { ...VM, name: target } });
}

/// A name with the time in it: several of the same day sort in their order.
export function nameAt(prefix, now) {
  return `${prefix.slice(0, 40)}-${now.toISOString().slice(0, 19).replace(/\D/g, "")}`;
}

/// The copies that belong to a VM.
export function ofVm(vm, { snapshots, restores, clones }) {
  const own = snapshots.filter(({ spec }) => spec.source.name === vm);
  const names = own.map(({ metadata }) => metadata.name);
  return {
    snapshots: own,
    restores: restores.filter(({ spec }) => spec.target.name === vm || names.includes(spec.virtualMachineSnapshotName)),
    clones: clones.filter(({ spec: { source } }) =>
      (source.kind === VM.kind ? source.name === vm : names.includes(source.name))),
  };
}

/// What an object waits for or why it failed, in a word or a sentence.
export function stateOf({ metadata, status }) {
  if (metadata.deletionTimestamp) return "Deleting";
  const of = (type) => status?.conditions?.find((one) => one.type === type);
  const failure = of("Failure");
  if (failure?.status === "True") return failure.message || failure.reason || "Failed";
  if (status?.error?.message) return status.error.message;
  if (status?.readyToUse || status?.complete || status?.phase === "Succeeded") return "Ready";
  const ready = of("Ready");
  return ready?.message || ready?.reason || status?.phase || "Waiting";
}
