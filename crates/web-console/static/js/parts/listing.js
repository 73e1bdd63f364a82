// A table of live objects in each of its states: being read, not permitted, failed, empty, filled.

import { element } from "../dom.js";
import { failureText } from "../live.js";
import { table } from "./table.js";

/// `what` is the plural of the objects, for sentences; `row` makes the cells of one. After a failure the objects
/// that were read last stay.
export function listing({ label, what, columns, row, empty }, { objects, isLoaded, failure }) {
  const hasRows = objects.length > 0;
  return [
    failure && element("p", { class: "error", role: "alert" }, failureText(failure, what)),
    !failure && !isLoaded && element("p", { class: "empty", role: "status" }, "Reading…"),
    (hasRows || (isLoaded && !failure)) && table(label, columns, objects.map(row), empty),
  ];
}

/// Newest first.
export function byAge(one, other) {
  return other.metadata.creationTimestamp.localeCompare(one.metadata.creationTimestamp);
}
