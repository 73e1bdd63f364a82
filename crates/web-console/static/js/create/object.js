// The VM of a filled form.

import { attached } from "../networks.js";
import { matcherOf } from "./sizes.js";

/// A number if the text is one; otherwise the text, so that the server's error names it.
function number(text) {
  return /^\d+$/.test(text) ? Number(text) : text;
}

export function vmOf(form) {
  const disk = () => (form.hasBus ? {} : { bus: "virtio" });
  const disks = [{ name: "root", disk: disk() }];
  const volume = form.source === "containerDisk" ? { image: form.image } : { claimName: form.image };
  const volumes = [{ name: "root", [form.source]: volume }];
  if (form.userData.trim()) {
    disks.push({ name: "cloudinit", disk: disk() });
    volumes.push({ name: "cloudinit", cloudInitNoCloud: { userData: form.userData } });
  }
  const sized = form.size ? {} : { cpu: { cores: number(form.cores) }, memory: { guest: form.memory } };
  const further = attached(form.networks ?? []);
  return {
    apiVersion: "kubevirt.io/v1",
    kind: "VirtualMachine",
    metadata: { name: form.name, namespace: form.namespace },
    spec: {
      runStrategy: form.strategy,
      instancetype: matcherOf(form.size),
      preference: matcherOf(form.preference),
      template: {
        spec: {
          domain: { ...sized, devices: { disks, interfaces: [{ name: "default", masquerade: {} }, ...further.interfaces] } },
          networks: [{ name: "default", pod: {} }, ...further.networks],
          volumes,
        },
      },
    },
  };
}
