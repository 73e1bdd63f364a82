// Exports: disks that are offered for download for a while.

import { call, collection, VMS } from "./api.js";
import { KINDS, pathOf } from "./copies.js";
import { claims, namesIn } from "./names.js";
import { condition } from "./parts/status.js";

export const GROUP = "export.kubevirt.io";
export const PLURAL = "virtualmachineexports";

/// What can be exported: the reference to it, and the names there are.
export const SOURCES = {
  vm: {
    text: "Virtual machine", apiGroup: "kubevirt.io", kind: "VirtualMachine",
    names: (namespace) => namesIn(collection(VMS, namespace)),
  },
  snapshot: {
    text: "Snapshot", apiGroup: "snapshot.kubevirt.io", kind: KINDS.snapshot.kind,
    names: (namespace) => namesIn(pathOf(KINDS.snapshot, namespace)),
  },
  claim: { text: "Claim", apiGroup: "", kind: "PersistentVolumeClaim", names: claims },
};

export function exportsOf(namespace) {
  return `/apis/${GROUP}/v1/namespaces/${namespace}/${PLURAL}`;
}

export function exportOf({ namespace, name, source, of, ttl }) {
  const { apiGroup, kind } = SOURCES[source];
  return {
    apiVersion: `${GROUP}/v1`, kind: "VirtualMachineExport", metadata: { namespace, name },
    spec: { source: { apiGroup, kind, name: of }, ttlDuration: ttl || undefined },
  };
}

export function sourceOf({ spec: { source } }) {
  const known = Object.values(SOURCES).find(({ kind }) => kind === source.kind);
  return `${known?.text ?? source.kind} ${source.name}`;
}

/// The state in a word, and why it is not ready.
export function stateOf({ metadata, status }) {
  if (metadata.deletionTimestamp) return { word: "Terminating", why: "" };
  const word = status?.phase ?? "Pending";
  const ready = condition({ status }, "Ready");
  const why = word !== "Ready" && ready?.status !== "True" ? ready?.message || ready?.reason : "";
  return { word, why: why ?? "" };
}

/// How long it is until a time, in hours and minutes.
export function left(time, now) {
  if (!time) return "";
  const minutes = Math.ceil((Date.parse(time) - now) / 60_000);
  if (minutes <= 0) return "over";
  const hours = Math.floor(minutes / 60);
  return hours > 0 ? `${hours} h ${minutes % 60} min` : `${minutes} min`;
}

/// The addresses of an export, from outside before inside: of each disk in each format, and of manifests. `isFile`
/// tells what a browser can save.
export function linksOf({ status }) {
  const places = [["external", "From outside"], ["internal", "From pods"]];
  return places.filter(([place]) => status?.links?.[place]).map(([place, text]) => {
    const { volumes = [], manifests = [] } = status.links[place];
    const disks = volumes.flatMap(({ name, formats = [] }) =>
      formats.map(({ format, url }) => ({ what: `${name}, ${format}`, url, isFile: format !== "dir" })));
    return { text, links: [...disks, ...manifests.map(({ type, url }) => ({ what: `manifest, ${type}`, url }))] };
  });
}

/// Asks for a path from which the browser can save what an address of the export has. It works once, within a minute.
export async function ticketFor({ metadata: { namespace, name } }, url) {
  const body = JSON.stringify({ namespace, export: name, url });
  const { path } = await call("POST", "/console/ticket", { body });
  return path;
}

/// The command that downloads a disk; on a cluster without a way in it goes through the API server.
export function commandOf({ metadata: { namespace, name }, status }) {
  const links = status?.links ?? {};
  const volume = (links.external ?? links.internal)?.volumes?.[0]?.name;
  if (!volume) return undefined;
  const way = links.external ? "" : " --port-forward";
  const what = `--namespace ${namespace} --volume ${volume} --output ${volume}.img.gz`;
  return `virtctl vmexport download ${name} ${what} --keep-vme${way}`;
}
