// The part of the address after `#` chooses the view.

import { OBJECTS } from "./objects.js";
import { console_ } from "./views/console.js";
import { copies } from "./views/copies.js";
import { create } from "./views/create.js";
import { detail } from "./views/detail.js";
import { edit } from "./views/edit.js";
import { exports_ } from "./views/exports.js";
import { list } from "./views/list.js";
import { networks } from "./views/networks.js";
import { screen } from "./views/screen.js";
import { images } from "./views/upload.js";

const NAME = "[a-z0-9.-]+";
const PLACE = `(?<namespace>${NAME})/(?<name>${NAME})`;
const KIND = `(?<kind>${Object.keys(OBJECTS).join("|")})`;

const ROUTES = [
  { pattern: /^$/, view: list, nav: "list", title: () => "Virtual machines" },
  { pattern: /^create$/, view: create, nav: "create", title: () => "Create" },
  { pattern: /^images$/, view: images, nav: "images", title: () => "Images" },
  { pattern: /^networks$/, view: networks, nav: "networks", title: () => "Networks" },
  { pattern: /^exports$/, view: exports_, nav: "exports", title: () => "Exports" },
  { pattern: new RegExp(`^vm/${PLACE}$`), view: detail, title: ({ name }) => name },
  { pattern: new RegExp(`^edit/${PLACE}$`), view: edit, title: ({ name }) => `Edit ${name}` },
  { pattern: new RegExp(`^object/${KIND}/${PLACE}$`), view: edit, title: ({ name }) => `${name}: YAML` },
  { pattern: new RegExp(`^copies/${PLACE}$`), view: copies, title: ({ name }) => `${name}: snapshots` },
  { pattern: new RegExp(`^console/${PLACE}$`), view: console_, title: ({ name }) => `${name}: console` },
  { pattern: new RegExp(`^screen/${PLACE}$`), view: screen, title: ({ name }) => `${name}: screen` },
];

let leave = () => {};

/// Shows the view of the address in `main`. A view is a function that fills `main` and returns how to
/// leave it.
export function show(main) {
  const address = location.hash.replace(/^#\/?/, "");
  if (location.hash === "#main") return;
  leave();
  const route = ROUTES.find(({ pattern }) => pattern.test(address)) ?? ROUTES[0];
  const place = { ...address.match(route.pattern)?.groups };
  for (const link of document.querySelectorAll("[data-nav]")) {
    if (link.dataset.nav === route.nav) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${route.title(place)} – Ferrovirt`;
  main.replaceChildren();
  leave = route.view(main, place) ?? (() => {});
  main.focus({ preventScroll: true });
}

export function leaveAll() {
  leave();
  leave = () => {};
}
