// Events about a VM, the latest first.

import { element } from "../dom.js";
import { age } from "./age.js";
import { listing } from "./listing.js";

export function timeOf(event) {
  return event.series?.lastObservedTime ?? event.lastTimestamp ?? event.eventTime ?? event.metadata.creationTimestamp;
}

export function events(state, namespace) {
  const objects = state.objects.toSorted((a, b) => String(timeOf(b)).localeCompare(String(timeOf(a))));
  const row = (event) => [
    age(timeOf(event)),
    element("span", { class: event.type === "Warning" ? "bad" : undefined }, event.type ?? ""),
    event.reason, event.involvedObject?.kind, event.message, String(event.series?.count ?? event.count ?? 1),
  ];
  const columns = ["Age", "Type", "Reason", { name: "Of", optional: true }, "Message", { name: "Times", optional: true }];
  const what = `events in namespace ${namespace}`;
  return listing({ label: "Events", what, columns, row, empty: "No events in the last hour." }, { ...state, objects });
}
