// Definitions of secondary networks, and what they say about themselves.

import { call } from "./api.js";

const SHOWN = ["bridge", "master", "mode", "vlan", "mtu"];
/// The namespace with the definitions for everybody.
const FOR_ALL = "default";

export function definitionsOf(namespace) {
  return `/apis/k8s.cni.cncf.io/v1/namespaces/${namespace}/network-attachment-definitions`;
}

/// The type of the plugin and its main settings, or a `problem`. A definition without settings names those of a node.
export function settingsOf({ spec }) {
  if (!spec?.config) return { type: "", settings: "the file of this name on the node" };
  let config;
  try {
    config = JSON.parse(spec.config);
  } catch {
    return { problem: "its settings are not JSON" };
  }
  const plugin = config?.plugins?.[0] ?? config;
  if (typeof plugin?.type !== "string") return { problem: "its settings name no type" };
  const settings = SHOWN.filter((name) => plugin[name] !== undefined).map((name) => `${name} ${plugin[name]}`);
  const addresses = plugin.ipam?.subnet ?? plugin.ipam?.range ?? plugin.ipam?.type;
  if (addresses) settings.push(`addresses ${addresses}`);
  return { type: plugin.type, settings: settings.join(", ") };
}

/// The networks that a VM of a namespace may name, with texts: those of its own namespace and those for everybody.
export async function choicesIn(namespace) {
  const own = (await definitions(namespace)).map((one) => [one.metadata.name, one]);
  const shared = namespace === FOR_ALL ? []
    : (await definitions(FOR_ALL)).map((one) => [`${FOR_ALL}/${one.metadata.name}`, one]);
  return [...own, ...shared].map(([name, one]) => [name, `${name} ${typeText(one)}`.trim()]);
}

async function definitions(namespace) {
  try {
    return (await call("GET", definitionsOf(namespace))).items;
  } catch (error) {
    if (![403, 404].includes(error.code)) throw error;
    return [];
  }
}

function typeText(definition) {
  const { type } = settingsOf(definition);
  return type ? `(${type})` : "";
}

/// The further networks and interfaces of a VM: a bridge to each definition.
export function attached(names) {
  const named = names.map((networkName, index) => ({ name: `net${index + 1}`, networkName }));
  return {
    interfaces: named.map(({ name }) => ({ name, bridge: {} })),
    networks: named.map(({ name, networkName }) => ({ name, multus: { networkName } })),
  };
}
