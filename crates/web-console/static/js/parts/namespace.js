// A field for a namespace, with those that the user may list as suggestions.

import { call } from "../api.js";
import { element } from "../dom.js";

export function namespaceField(attributes) {
  const options = element("datalist", { id: `${attributes.id}-list` });
  const input = element("input", { autocomplete: "off", spellcheck: "false", list: options.id, ...attributes });
  suggest(options);
  return [input, options];
}

/// Without the right to list namespaces the user types the name.
async function suggest(options) {
  try {
    const { items } = await call("GET", "/api/v1/namespaces");
    options.replaceChildren(...items.map(({ metadata }) => element("option", { value: metadata.name })));
  } catch (error) {
    if (error.code !== 403) throw error;
  }
}
