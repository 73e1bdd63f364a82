// Names of objects, to suggest them.

import { call } from "./api.js";

/// The names in a collection; none if the user may not list it, or the server does not have it.
export async function namesIn(path) {
  try {
    const { items } = await call("GET", path);
    return items.map(({ metadata }) => metadata.name);
  } catch (error) {
    if (![403, 404].includes(error.code)) throw error;
    return [];
  }
}

export function claims(namespace) {
  return namesIn(`/api/v1/namespaces/${namespace}/persistentvolumeclaims`);
}
