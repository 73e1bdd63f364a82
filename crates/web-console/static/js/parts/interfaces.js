// Networks and interfaces of a guest.

import { element } from "../dom.js";
import { table } from "./table.js";

const OTHERS = ["name", "macAddress", "model", "ports", "bootOrder", "state", "tag", "pciAddress", "acpiIndex", "dhcpOptions"];

export function bindingOf(entry) {
  return entry?.binding?.name ?? Object.keys(entry ?? {}).find((key) => !OTHERS.includes(key)) ?? "";
}

export function networkOf(network) {
  if (network?.multus) return `multus ${network.multus.networkName}`;
  return network ? "pod" : "";
}

/// The name of a network; a secondary one leads to the list of definitions.
function networkLink(network) {
  const text = networkOf(network);
  return network?.multus ? element("a", { href: "#/networks" }, text) : text;
}

export function interfaces(spec, vmi) {
  const wanted = spec?.domain?.devices?.interfaces ?? [];
  const found = vmi?.status?.interfaces ?? [];
  const names = [...new Set([...wanted, ...found].map(({ name, interfaceName }) => name ?? interfaceName))];
  const rows = names.map((name) => {
    const entry = wanted.find((one) => one.name === name);
    const status = found.find((one) => (one.name ?? one.interfaceName) === name);
    const network = spec?.networks?.find((one) => one.name === name);
    return [name, networkLink(network), bindingOf(entry), (status?.ipAddresses ?? []).join(", ") || status?.ipAddress,
      status?.mac ?? entry?.macAddress, status?.interfaceName];
  });
  const columns = ["Name", "Network", { name: "Binding", optional: true }, "Addresses",
    { name: "MAC", optional: true }, { name: "In the guest", optional: true }];
  return table("Networks", columns, rows, "No networks.");
}
