// Disks and volumes of a guest.

import { verbButton } from "./actions.js";
import { table } from "./table.js";
import { detach } from "./verbs.js";

/// The type of a volume and the name of its source.
export function sourceOf(volume) {
  const [type, source] = Object.entries(volume).find(([key]) => key !== "name") ?? ["unknown", {}];
  const named = source?.claimName ?? source?.image ?? source?.secretName ?? source?.name ?? source?.capacity
    ?? source?.secretRef?.name ?? "";
  return { type, named };
}

export function busOf(disk) {
  for (const kind of ["disk", "cdrom", "lun"]) {
    if (disk?.[kind]) return [kind, disk[kind].bus].filter(Boolean).join(", ");
  }
  return disk ? "disk" : "";
}

/// The volumes of a VM and of its guest, which differ while one comes or goes.
export function volumes(machine) {
  const { vm, vmi } = machine;
  const specs = [vm?.spec.template?.spec, vmi?.spec].filter(Boolean);
  const disks = specs.flatMap((spec) => spec.domain?.devices?.disks ?? []);
  const all = new Map(specs.flatMap((spec) => spec.volumes ?? []).map((volume) => [volume.name, volume]));
  const rows = [...all.values()].map((volume) => {
    const { type, named } = sourceOf(volume);
    const status = vmi?.status?.volumeStatus?.find(({ name }) => name === volume.name);
    const isWanted = specs[0].volumes?.some(({ name }) => name === volume.name);
    return [volume.name, type, named, busOf(disks.find(({ name }) => name === volume.name)),
      status?.target, status?.reason ?? status?.phase,
      volume[type]?.hotpluggable && isWanted && verbButton(detach(volume.name), machine)];
  });
  const columns = ["Name", "Type", "Source", { name: "Attached as", optional: true }, "Target",
    { name: "State", optional: true }];
  if (rows.some((cells) => cells.at(-1))) columns.push("Actions");
  else rows.forEach((cells) => cells.pop());
  return table("Disks", columns, rows, "No volumes.");
}
