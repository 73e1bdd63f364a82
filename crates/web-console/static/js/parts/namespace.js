// A field for a namespace, with those that the user may list as suggestions.

import { element } from "../dom.js";
import { namesIn } from "../names.js";

export function namespaceField(attributes) {
  const options = element("datalist", { id: `${attributes.id}-list` });
  const input = element("input", { autocomplete: "off", spellcheck: "false", list: options.id, ...attributes });
  suggest(options);
  return [input, options];
}

/// Without the right to list namespaces the user types the name.
async function suggest(options) {
  const names = await namesIn("/api/v1/namespaces");
  options.replaceChildren(...names.map((name) => element("option", { value: name })));
}
