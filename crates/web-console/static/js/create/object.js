// The VM of a filled form.

/// A number if the text is one; otherwise the text, so that the server's error names it.
function number(text) {
  return /^\d+$/.test(text) ? Number(text) : text;
}

export function vmOf(form) {
  const disks = [{ name: "root", disk: { bus: "virtio" } }];
  const volume = form.source === "containerDisk" ? { image: form.image } : { claimName: form.image };
  const volumes = [{ name: "root", [form.source]: volume }];
  if (form.userData.trim()) {
    disks.push({ name: "cloudinit", disk: { bus: "virtio" } });
    volumes.push({ name: "cloudinit", cloudInitNoCloud: { userData: form.userData } });
  }
  const sized = form.size ? {} : { cpu: { cores: number(form.cores) }, memory: { guest: form.memory } };
  return {
    apiVersion: "kubevirt.io/v1",
    kind: "VirtualMachine",
    metadata: { name: form.name, namespace: form.namespace },
    spec: {
      runStrategy: form.strategy,
      instancetype: form.size ? { kind: "VirtualMachineClusterInstancetype", name: form.size } : undefined,
      template: {
        spec: {
          domain: { ...sized, devices: { disks, interfaces: [{ name: "default", masquerade: {} }] } },
          networks: [{ name: "default", pod: {} }],
          volumes,
        },
      },
    },
  };
}
