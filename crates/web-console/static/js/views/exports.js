// The exports of a namespace.

import { call } from "../api.js";
import { element, fill, refresh } from "../dom.js";
import { exportsOf, GROUP, left, PLURAL, sourceOf, stateOf } from "../exports.js";
import { live } from "../live.js";
import { deleteButton } from "../parts/delete.js";
import { exportButton, linksButton } from "../parts/exporting.js";
import { byAge, listing } from "../parts/listing.js";
import { scope } from "../parts/scope.js";
import { badge } from "../parts/status.js";
import { yamlLink } from "../parts/yaml.js";

/// How often the time that is left is drawn.
const EVERY = 20_000;

export function exports_(main) {
  const place = scope(follow);
  const create = element("div", {});
  const body = element("div", { class: "card" });
  let state = { stop: () => {} };

  function draw() {
    const namespace = place.current();
    const columns = ["Name", { name: "Of", optional: true }, "State", "Time left", { name: "Why", optional: true }, "Actions"];
    const row = (one) => {
      const { word, why } = stateOf(one);
      return [one.metadata.name, sourceOf(one), badge(word), left(one.status?.ttlExpirationTime, Date.now()), why,
        element("div", { class: "group" }, linksButton(one), yamlLink("export", namespace, one), removeButton(namespace, one))];
    };
    const list = { label: "Exports", what: `exports in namespace ${namespace}`, columns, row, empty: "There is no export here yet." };
    refresh(body, listing(list, { ...state, objects: state.objects.toSorted(byAge) }));
  }

  function follow(namespace) {
    state.stop();
    state = live(exportsOf(namespace), draw);
    fill(create, exportButton(namespace, { label: "Create an export" }));
    draw();
  }

  fill(main, element("div", { class: "bar" }, element("h1", { class: "grow" }, "Exports"), place.row, create), body);
  follow(place.current());
  const timer = setInterval(draw, EVERY);
  return () => {
    clearInterval(timer);
    state.stop();
  };
}

function removeButton(namespace, { metadata: { name } }) {
  return deleteButton({
    name, ask: "Its links end at once, and with them downloads that run.",
    right: { group: GROUP, resource: PLURAL, verb: "delete", namespace },
    remove: () => call("DELETE", `${exportsOf(namespace)}/${name}`),
  });
}
