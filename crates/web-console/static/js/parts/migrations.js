// The migrations of a guest, with how far they are and the button to cancel one.

import { call, collection } from "../api.js";
import { element } from "../dom.js";
import { copied, failureOf, isOver, MIGRATIONS, ofGuest, phaseOf, way } from "../migrations.js";
import { age } from "./age.js";
import { deleteButton } from "./delete.js";
import { listing } from "./listing.js";
import { badge } from "./status.js";
import { yamlLink } from "./yaml.js";

export function migrations({ namespace, name }, state) {
  const objects = ofGuest(name, state.objects);
  const columns = ["State", "Memory", "Nodes", { name: "Age", optional: true }, { name: "Why", optional: true }, "Actions"];
  const row = (one) => [badge(phaseOf(one)), progress(one), way(one), age(one.metadata.creationTimestamp), failureOf(one),
    element("div", { class: "group" }, yamlLink("migration", namespace, one),
      !isOver(one) && !one.metadata.deletionTimestamp && cancelButton(namespace, one))];
  const what = `migrations in namespace ${namespace}`;
  return listing({ label: "Migrations", what, columns, row, empty: "No migrations." }, { ...state, objects });
}

function progress(migration) {
  const memory = copied(migration);
  if (!memory || isOver(migration)) return "";
  const text = `${memory.done.toFixed(0)} of ${memory.total.toFixed(0)} MiB`;
  return element("div", {}, element("progress", { "aria-label": "Copied memory", max: memory.total, value: memory.done }), text);
}

function cancelButton(namespace, { metadata: { name } }) {
  return deleteButton({
    label: "Cancel", name, ask: "The guest stays in its pod. If the new pod runs it already, it stays there.",
    right: { group: "kubevirt.io", resource: MIGRATIONS, verb: "delete", namespace },
    remove: () => call("DELETE", `${collection(MIGRATIONS, namespace)}/${name}`),
  });
}
