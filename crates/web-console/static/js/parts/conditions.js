// Conditions of an object.

import { age } from "./age.js";
import { table } from "./table.js";

export function conditions(objects) {
  const rows = objects.flatMap(({ kind, object }) =>
    (object?.status?.conditions ?? []).map(({ type, status, reason, message, lastTransitionTime }) => [
      kind, type, status, reason, message, age(lastTransitionTime),
    ]));
  const columns = [{ name: "Of", optional: true }, "Type", "Status", "Reason", "Message",
    { name: "Since", optional: true }];
  return table("Conditions", columns, rows, "No conditions yet.");
}
