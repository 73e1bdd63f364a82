// Kinds whose objects are shown and changed as YAML: where they are, and the view that has them.

import { collection, VMS } from "./api.js";
import { KINDS, pathOf } from "./copies.js";
import { exportsOf, GROUP as EXPORTS, PLURAL as EXPORTED } from "./exports.js";
import { MIGRATIONS } from "./migrations.js";
import { definitionsOf } from "./networks.js";
import { GROUP as IMPORTS, PLURAL as VOLUMES, volumesOf } from "./upload.js";

const VM = "VirtualMachine";
const machine = (namespace, name) => `#/vm/${namespace}/${name}`;
const copies = (namespace, name) => (name ? `#/copies/${namespace}/${name}` : "#/");

/// `home` is the address of the view that an object was opened from; `saved` is said after a change.
export const OBJECTS = {
  vm: {
    kind: VM, group: "kubevirt.io", resource: VMS, path: (namespace) => collection(VMS, namespace),
    home: ({ metadata: { namespace, name } }) => machine(namespace, name),
    saved: " A guest that runs gets some changes at its next start.",
  },
  migration: {
    kind: "VirtualMachineInstanceMigration", group: "kubevirt.io", resource: MIGRATIONS,
    path: (namespace) => collection(MIGRATIONS, namespace),
    home: ({ metadata: { namespace }, spec }) => machine(namespace, spec.vmiName),
  },
  snapshot: {
    ...copy(KINDS.snapshot),
    home: ({ metadata: { namespace }, spec: { source } }) => copies(namespace, source.kind === VM && source.name),
  },
  restore: {
    ...copy(KINDS.restore),
    home: ({ metadata: { namespace }, spec: { target } }) => copies(namespace, target.kind === VM && target.name),
  },
  clone: {
    ...copy(KINDS.clone),
    home: ({ metadata: { namespace }, spec: { source } }) => copies(namespace, source.kind === VM && source.name),
  },
  export: {
    kind: "VirtualMachineExport", group: EXPORTS, resource: EXPORTED, path: exportsOf, home: () => "#/exports",
  },
  volume: {
    kind: "DataVolume", group: IMPORTS, resource: VOLUMES, path: volumesOf, home: () => "#/images",
  },
  network: {
    kind: "NetworkAttachmentDefinition", group: "k8s.cni.cncf.io", resource: "network-attachment-definitions",
    path: definitionsOf, home: () => "#/networks",
  },
};

function copy(one) {
  return { kind: one.kind, group: one.group, resource: one.plural, path: (namespace) => pathOf(one, namespace) };
}
