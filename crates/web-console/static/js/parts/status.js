// The status of a VM as a badge.

import { element } from "../dom.js";

const CLASSES = {
  Running: "good", Ready: "good", Succeeded: "off", Stopped: "off", Halted: "off", Suspended: "off",
  Paused: "busy", Starting: "busy", Stopping: "busy", Terminating: "busy", Provisioning: "busy",
  Migrating: "busy", WaitingForVolumeBinding: "busy", WaitingForReceiver: "busy", Pending: "busy",
  Scheduling: "busy", Scheduled: "busy", PreparingTarget: "busy", TargetReady: "busy", WaitingForSync: "busy",
  Synchronizing: "busy", Cancelling: "busy", UploadScheduled: "busy", UploadReady: "busy", ImportScheduled: "busy",
  ImportInProgress: "busy", CloneScheduled: "busy", CloneInProgress: "busy", PendingPopulation: "busy",
  WaitForFirstConsumer: "busy", PVCBound: "busy", Skipped: "off", Terminated: "off",
};

/// The printable status of a VM, or the phase of a VMI without a VM.
export function statusOf(vm, vmi) {
  if (isSuspended(vm)) return "Suspended";
  if (vm) return vm.status?.printableStatus ?? "Unknown";
  if (vmi?.metadata.deletionTimestamp) return "Terminating";
  if (isPaused(vmi)) return "Paused";
  return vmi?.status?.phase ?? "Unknown";
}

export function badge(status) {
  return element("span", { class: `badge ${CLASSES[status] ?? (status === "Unknown" ? "off" : "bad")}` }, status);
}

export function condition(object, type) {
  return object?.status?.conditions?.find((one) => one.type === type);
}

export function isPaused(vmi) {
  return condition(vmi, "Paused")?.status === "True";
}

/// Whether the memory of the guest is on a claim.
export function isSuspended(vm) {
  return condition(vm, "Suspended")?.status === "True";
}

export function isRunning(vmi) {
  return vmi?.status?.phase === "Running" && !vmi.metadata.deletionTimestamp;
}

/// Whether there is a guest, or soon will be.
export function isActive(vmi) {
  return Boolean(vmi) && !["Succeeded", "Failed"].includes(vmi.status?.phase);
}
