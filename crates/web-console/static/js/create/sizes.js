// Instance types and preferences that a VM may name, and the CPUs and memory that it gets from them.

import { call } from "../api.js";
import { bytesOf } from "../parts/usage.js";

const GROUP = "/apis/instancetype.kubevirt.io/v1beta1";
/// Of each family: the plural and the kind in a namespace and in the cluster.
const FAMILIES = {
  size: [["virtualmachineinstancetypes", "VirtualMachineInstancetype"],
    ["virtualmachineclusterinstancetypes", "VirtualMachineClusterInstancetype"]],
  preference: [["virtualmachinepreferences", "VirtualMachinePreference"],
    ["virtualmachineclusterpreferences", "VirtualMachineClusterPreference"]],
};
const LAYOUTS = {
  sockets: "as sockets", cores: "as cores", threads: "as threads", spread: "spread over sockets, cores or threads",
};

/// Those of a family for VMs of a namespace, as groups of the namespace and of the cluster. Each has a value with its
/// kind, as both can have the same name.
export async function choicesOf(family, namespace) {
  const [own, cluster] = FAMILIES[family];
  const paths = [`${GROUP}/namespaces/${namespace}/${own[0]}`, `${GROUP}/${cluster[0]}`];
  const [inNamespace, inCluster] = await Promise.all(paths.map(items));
  const named = (objects, kind) =>
    objects.map(({ metadata: { name }, spec }) => ({ value: `${kind}/${name}`, name, spec }));
  return [
    { label: `In namespace ${namespace}`, choices: named(inNamespace, own[1]) },
    { label: "Of the cluster", choices: named(inCluster, cluster[1]) },
  ];
}

/// None if the user may not list them, or the server has none.
async function items(path) {
  try {
    return (await call("GET", path)).items;
  } catch (error) {
    if (![403, 404].includes(error.code)) throw error;
    return [];
  }
}

/// The reference of a chosen value; undefined without one.
export function matcherOf(value) {
  const [kind, name] = (value ?? "").split("/");
  return name && { kind, name };
}

/// The text of an instance type in a list.
export function sizeText({ name, spec }) {
  return `${name} (${spec?.cpu?.guest ?? "?"} CPU, ${spec?.memory?.guest ?? "?"})`;
}

/// The CPUs and memory of the VM of a form, as a sentence, and why the preference refuses them.
export function resultOf({ cores, memory, size, preference }) {
  const cpus = size ? size.spec?.cpu?.guest : Number(cores);
  const all = size ? size.spec?.memory?.guest : memory;
  if (!Number.isInteger(cpus) || cpus < 1 || !bytesOf(all)) return { sentence: "", problem: "" };
  const layout = LAYOUTS[layoutOf(preference)];
  const share = size?.spec?.memory?.overcommitPercent;
  const sentence = [
    `The guest gets ${cpus} ${cpus === 1 ? "CPU" : "CPUs"}${cpus > 1 && layout && size ? ` ${layout}` : ""} and ${all} of memory`,
    size?.spec?.cpu?.dedicatedCPUPlacement && ", with CPUs of its own",
    share && `, of which the node need not have ${share} %`,
  ].filter(Boolean).join("");
  return { sentence: `${sentence}.`, problem: unmet(preference, cpus, all) };
}

/// The layout of CPUs, by its present name.
function layoutOf(preference) {
  const given = preference?.spec?.cpu?.preferredCPUTopology;
  return given?.replace(/^prefer([A-Z])/, (_, first) => first.toLowerCase());
}

function unmet(preference, cpus, memory) {
  const wanted = preference?.spec?.requirements;
  const few = wanted?.cpu?.guest > cpus && `${wanted.cpu.guest} CPUs`;
  const small = wanted?.memory?.guest && bytesOf(wanted.memory.guest) > bytesOf(memory) && `${wanted.memory.guest} of memory`;
  const missing = [few, small].filter(Boolean).join(" and ");
  return missing && `The preference ${preference.name} requires ${missing}.`;
}

/// Whether a preference chooses the bus of disks, which a VM then leaves open.
export function choosesBus(preference) {
  return Boolean(preference?.spec?.devices?.preferredDiskBus);
}
