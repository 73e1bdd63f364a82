// Migrations: the objects that ask for them, and how far they are.

import { condition, isRunning } from "./parts/status.js";

export const MIGRATIONS = "virtualmachineinstancemigrations";

/// Moves a guest that belongs to no VM.
export const MIGRATE_GUEST = {
  name: "migrate-guest", label: "Migrate", create: MIGRATIONS, done: "is moving to another pod",
  applies: ({ vm, vmi }) => !vm && isRunning(vmi) && condition(vmi, "LiveMigratable")?.status === "True",
  ask: "The guest moves to another pod, on another node if there is one, while it runs.",
  body: (_, { namespace, name }) => ({
    apiVersion: "kubevirt.io/v1", kind: "VirtualMachineInstanceMigration",
    metadata: { namespace, generateName: "console-" }, spec: { vmiName: name },
  }),
};

/// Those of a guest, the newest first.
export function ofGuest(name, migrations) {
  return migrations.filter(({ spec }) => spec.vmiName === name).toSorted((one, other) =>
    other.metadata.creationTimestamp.localeCompare(one.metadata.creationTimestamp));
}

export function isOver({ status }) {
  return ["Succeeded", "Failed"].includes(status?.phase);
}

/// The phase, or that it is being cancelled.
export function phaseOf(migration) {
  if (migration.metadata.deletionTimestamp && !isOver(migration)) return "Cancelling";
  return migration.status?.phase ?? "Pending";
}

/// How much of the memory was copied, as MiB; undefined if the server does not say. The message of a condition begins
/// with `81.0 of 96.0 MiB remain`.
export function copied(migration) {
  const message = condition(migration, "migrationProgress")?.message ?? "";
  const [, remain, total] = message.match(/^(\d+(?:\.\d+)?) of (\d+(?:\.\d+)?) MiB /) ?? [];
  return total && { done: Math.max(0, total - remain), total: Number(total) };
}

/// From where to where, as far as it is known.
export function way({ status }) {
  const state = status?.migrationState ?? {};
  const isOneNode = state.sourceNode && state.sourceNode === state.targetNode;
  const ends = isOneNode ? [state.sourceNode] : [state.sourceNode, state.targetNode];
  return ends.filter(Boolean).join(" → ");
}

export function failureOf({ status }) {
  return status?.migrationState?.failureReason ?? condition({ status }, "migrationRejectedByResourceQuota")?.message ?? "";
}
