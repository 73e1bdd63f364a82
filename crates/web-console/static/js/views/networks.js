// The networks that VMs of a namespace can join besides that of pods.

import { element, fill, refresh } from "../dom.js";
import { live } from "../live.js";
import { definitionsOf, settingsOf } from "../networks.js";
import { age } from "../parts/age.js";
import { listing } from "../parts/listing.js";
import { scope } from "../parts/scope.js";
import { yamlLink } from "../parts/yaml.js";

export function networks(main) {
  const place = scope(follow);
  const body = element("div", { class: "card" });
  let state = { stop: () => {} };

  function draw() {
    const columns = ["Name", "Type", "Settings", { name: "Age", optional: true }, "Actions"];
    const row = (one) => {
      const { type, settings, problem } = settingsOf(one);
      return [one.metadata.name, type, problem ? element("span", { class: "bad" }, problem) : settings,
        age(one.metadata.creationTimestamp), yamlLink("network", place.current(), one)];
    };
    const what = `network attachment definitions in namespace ${place.current()}`;
    const empty = "There is no secondary network here; VMs have the network of pods.";
    refresh(body, listing({ label: "Networks", what, columns, row, empty }, state));
  }

  function follow(namespace) {
    state.stop();
    state = live(definitionsOf(namespace), draw);
    draw();
  }

  fill(main,
    element("div", { class: "bar" }, element("h1", { class: "grow" }, "Networks"), place.row),
    element("p", { class: "help" }, "Secondary networks that the form offers. Definitions in namespace default are for all namespaces."),
    body);
  follow(place.current());
  return () => state.stop();
}
