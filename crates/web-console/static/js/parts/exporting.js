// The dialog that creates an export, and the one with its links.

import { call } from "../api.js";
import { nameAt } from "../copies.js";
import { element } from "../dom.js";
import { commandOf, exportOf, exportsOf, GROUP, linksOf, PLURAL, SOURCES, ticketFor } from "../exports.js";
import { ask, inform } from "./dialog.js";
import { guard } from "./guard.js";
import { notify } from "./notice.js";

/// A button that asks what to export; `source` and `of` are filled in. The namespace is asked for when it is used.
export function exportButton(namespace, { source = "vm", of = "", label = "Export" } = {}) {
  const name = `${label} ${of}`.trim();
  const click = async () => {
    const isDone = await ask({
      title: of ? `Export ${of}` : "Create an export", action: "Create",
      text: "The disks can be downloaded until the export ends. A VM must be stopped for it; a snapshot need not wait.",
      fields: fieldsOf(namespace, { source, of }),
      submit: (values) => call("POST", exportsOf(namespace), {
        query: { fieldValidation: "Strict" }, body: JSON.stringify(exportOf({ namespace, ...values })),
      }),
    });
    if (isDone) notify("The export is being prepared; see Exports.");
  };
  const made = element("button", { type: "button", "data-key": name, "aria-label": name, on: { click } }, label);
  return guard(made, { group: GROUP, resource: PLURAL, verb: "create", namespace });
}

function fieldsOf(namespace, { source, of }) {
  return [
    { name: "source", label: "What", value: source, options: Object.entries(SOURCES).map(([key, { text }]) => [key, text]) },
    { name: "of", label: "Its name", value: of, suggest: (values) => SOURCES[values.source].names(namespace) },
    { name: "name", label: "Name of the export", value: nameAt(of || "export", new Date()) },
    { name: "ttl", label: "Ends after", value: "2h", help: "Hours and minutes, such as 30m or 4h; then it is deleted." },
  ];
}

/// A button that shows the links.
export function linksButton(one) {
  const { name } = one.metadata;
  const content = linksOf(one).map(({ text, links }) => [
    element("h3", {}, text),
    element("ul", {}, links.map(({ what, url, isFile }) => element("li", {}, `${what}: `, element("code", {}, url), " ",
      isFile && downloadButton(one, { what, url })))),
  ]);
  const command = commandOf(one);
  const secret = one.status?.tokenSecretRef ?? "";
  const text = "Download saves a file here, if you may read the token. Every other request needs the token, "
    + `which is in the Secret ${secret} under the key token.`;
  const click = () => inform({
    title: `Links of ${name}`, text,
    content: [command && element("p", {}, "With virtctl, which finds the token by itself: ", element("code", {}, command)),
      ...content.flat()],
  });
  const attributes = { type: "button", "data-key": `links/${name}/${one.metadata.resourceVersion}`,
    "aria-label": `Links of ${name}`, disabled: content.length === 0, on: { click } };
  return element("button", attributes, "Links");
}

/// A button that has the browser save a file. Its errors stand beside it, as the dialog lies above everything else.
function downloadButton(one, { what, url }) {
  const problem = element("span", { class: "error", role: "alert" });
  const click = async () => {
    made.disabled = true;
    problem.textContent = "";
    try {
      // An attachment leaves the page where it is; `download` keeps it there if the server has an error instead.
      element("a", { href: await ticketFor(one, url), download: true }).click();
    } catch (error) {
      problem.textContent = ` ${error.message}`;
    } finally {
      made.disabled = false;
    }
  };
  const made = element("button", { type: "button", "aria-label": `Download ${what}`, on: { click } }, "Download");
  return [made, problem];
}
