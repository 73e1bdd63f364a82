// Disks and volumes of a guest.

import { table } from "./table.js";

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

export function volumes(spec, vmi) {
  const disks = spec?.domain?.devices?.disks ?? [];
  const rows = (spec?.volumes ?? []).map((volume) => {
    const { type, named } = sourceOf(volume);
    const status = vmi?.status?.volumeStatus?.find(({ name }) => name === volume.name);
    return [volume.name, type, named, busOf(disks.find(({ name }) => name === volume.name)),
      status?.target, status?.reason ?? status?.phase];
  });
  const columns = ["Name", "Type", "Source", { name: "Attached as", optional: true }, "Target",
    { name: "State", optional: true }];
  return table("Disks", columns, rows, "No volumes.");
}
