// The link to an object as YAML.

import { element } from "../dom.js";
import { OBJECTS } from "../objects.js";
import { guard } from "./guard.js";

/// `kind` is a key of `OBJECTS`.
export function yamlLink(kind, namespace, { metadata: { name } }) {
  const { group, resource } = OBJECTS[kind];
  const label = `YAML of ${name}`;
  const href = `#/object/${kind}/${namespace}/${name}`;
  const link = element("a", { class: "button", href, "data-key": label, "aria-label": label }, "YAML");
  return guard(link, { group, resource, verb: "get", namespace });
}
