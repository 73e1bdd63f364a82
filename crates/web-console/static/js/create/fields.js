// The fields of the form: each has the paths of the object that it sets, to show errors beside it.

export const FIELDS = [
  {
    name: "name", label: "Name", required: true, paths: ["metadata.name", "metadata.generateName"],
    help: "Lower-case letters, digits and dashes.",
  },
  { name: "namespace", label: "Namespace", required: true, type: "namespace", paths: ["metadata.namespace"] },
  {
    name: "source", label: "Disk", type: "select", paths: [],
    options: [["containerDisk", "Image of a container registry"], ["persistentVolumeClaim", "Existing claim"]],
  },
  {
    name: "image", label: "Image or claim", required: true, paths: ["spec.template.spec.volumes[0]"],
    help: "For example registry.example/debian:12, or the name of the claim.",
  },
  {
    name: "size", label: "Size", type: "select", paths: ["spec.instancetype"], options: [["", "As below"]],
    help: "An instance type sets CPUs and memory.",
  },
  {
    name: "preference", label: "Preference", type: "select", paths: ["spec.preference"], options: [["", "None"]],
    help: "Settings of devices that suit an operating system.",
  },
  {
    name: "cores", label: "CPUs", value: "1", inputmode: "numeric",
    paths: ["spec.template.spec.domain.cpu", "spec.template.spec.domain.resources.requests.cpu"],
  },
  {
    name: "memory", label: "Memory", value: "1Gi",
    paths: ["spec.template.spec.domain.memory", "spec.template.spec.domain.resources"],
    help: "With a unit, for example 512Mi or 4Gi.",
  },
  {
    name: "networks", label: "Further networks", type: "networks",
    paths: ["spec.template.spec.networks", "spec.template.spec.domain.devices.interfaces"],
    help: "Secondary networks besides that of pods; Ctrl chooses several. Only networks that you may list are shown.",
  },
  {
    name: "strategy", label: "Run", type: "select", paths: ["spec.runStrategy", "spec.running"],
    options: [["Always", "Always: start it and keep it running"], ["RerunOnFailure", "Until it shuts itself down"],
      ["Manual", "By hand only"], ["Halted", "Not now"]],
  },
  {
    name: "userData", label: "cloud-init user data", type: "textarea", paths: ["spec.template.spec.volumes[1]"],
    help: "Optional; begins with #cloud-config.",
  },
];

/// The field of the form that sets the field of the object; the one with the longest path.
export function fieldOf(path) {
  const score = (field) => Math.max(0, ...field.paths
    .filter((own) => path === own || path.startsWith(`${own}.`) || path.startsWith(`${own}[`))
    .map((own) => own.length));
  const best = FIELDS.toSorted((a, b) => score(b) - score(a))[0];
  return score(best) > 0 ? best : undefined;
}
