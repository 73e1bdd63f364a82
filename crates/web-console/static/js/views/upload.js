// Uploads a disk image into a data volume, and lists the data volumes of the namespace.

import { call } from "../api.js";
import { element, fill, refresh } from "../dom.js";
import { live } from "../live.js";
import { namesIn } from "../names.js";
import { age } from "../parts/age.js";
import { deleteButton } from "../parts/delete.js";
import { guardAgain } from "../parts/guard.js";
import { byAge, listing } from "../parts/listing.js";
import { notify } from "../parts/notice.js";
import { scope } from "../parts/scope.js";
import { badge } from "../parts/status.js";
import { size } from "../parts/usage.js";
import { yamlLink } from "../parts/yaml.js";
import { GROUP, nameFor, PLURAL, sizeFor, stateOf, upload, volumesOf } from "../upload.js";

export function images(main) {
  const place = scope(follow);
  const file = element("input", { id: "image-file", type: "file", required: true, on: { change: suggest } });
  const name = element("input", { id: "image-name", required: true, autocomplete: "off", spellcheck: "false" });
  const capacity = element("input", { id: "image-size", required: true, autocomplete: "off", spellcheck: "false" });
  const classes = element("datalist", { id: "image-class-list" });
  const storageClass = element("input", { id: "image-class", autocomplete: "off", spellcheck: "false", list: classes.id });
  const error = element("p", { class: "error", role: "alert" });
  const bar = element("progress", { "aria-label": "Sent" });
  const step = element("span", { role: "status", id: "step" });
  const cancel = element("button", { type: "button", id: "cancel" }, "Cancel");
  const progress = element("div", { class: "bar", hidden: true }, bar, step, cancel);
  const send = element("button", { class: "main", id: "send" }, "Upload");
  const body = element("section", { class: "card", "aria-label": "Data volumes" });
  let state = { stop: () => {} };
  let sending;

  function suggest() {
    const [chosen] = file.files;
    if (!chosen) return;
    name.value ||= nameFor(chosen.name);
    capacity.value ||= sizeFor(chosen.size);
  }

  function show(text, sent) {
    const [chosen] = file.files;
    step.textContent = sent === undefined ? `${text}…` : `${text}… ${size(sent)} of ${size(chosen.size)}`;
    if (sent === undefined || sent >= chosen.size) bar.removeAttribute("value");
    else Object.assign(bar, { max: chosen.size, value: sent });
  }

  async function submit(event) {
    event.preventDefault();
    if (sending) return;
    const [chosen] = file.files;
    if (!chosen) return fill(error, "Choose the file.");
    sending = new AbortController();
    const { signal } = sending;
    const given = { file: chosen, namespace: place.current(), name: name.value.trim(), size: capacity.value.trim(),
      storageClass: storageClass.value.trim() };
    fill(error);
    busy(true);
    try {
      await upload(given, show, signal);
      notify(`${given.namespace}/${given.name} has the data of ${chosen.name}.`);
      send.textContent = "Upload";
    } catch (failure) {
      if (main.contains(error)) error.textContent = failure.message;
      else notify(`Upload of ${chosen.name}: ${failure.message}`, "bad");
      send.textContent = "Send again";
    } finally {
      sending = undefined;
      busy(false);
    }
  }

  function busy(is) {
    progress.hidden = !is;
    // A missing right has disabled it for good.
    send.disabled = is || Boolean(send.title);
    for (const input of [file, name, capacity, storageClass]) input.disabled = is;
    if (is) addEventListener("beforeunload", warn);
    else removeEventListener("beforeunload", warn);
  }

  function draw() {
    const namespace = place.current();
    const columns = ["Name", "State", { name: "Progress", optional: true }, { name: "Why", optional: true },
      { name: "Age", optional: true }, "Actions"];
    const row = (one) => {
      const { word, why } = stateOf(one);
      return [one.metadata.name, badge(word), one.status?.progress, why, age(one.metadata.creationTimestamp),
        element("div", { class: "group" }, yamlLink("volume", namespace, one), removeButton(namespace, one))];
    };
    const list = { label: "Data volumes", what: `data volumes in namespace ${namespace}`, columns, row,
      empty: "There is no data volume here yet." };
    refresh(body, element("h2", {}, "Data volumes"), listing(list, { ...state, objects: state.objects.toSorted(byAge) }));
  }

  function follow(namespace) {
    state.stop();
    state = live(volumesOf(namespace), draw);
    guardAgain(send, { group: GROUP, resource: PLURAL, verb: "create", namespace });
    draw();
  }

  cancel.addEventListener("click", () => sending?.abort());
  const field = (input, label, help) => element("div", { class: "field" }, element("label", { for: input.id }, label), input,
    help && element("div", { class: "help" }, help));
  fill(main,
    element("div", { class: "bar" }, element("h1", { class: "grow" }, "Upload an image"), place.row),
    element("form", { class: "card", on: { submit } },
      field(file, "File", "A disk as raw, qcow2 and others, also compressed by gzip or xz."),
      field(name, "Name of the data volume"),
      field(capacity, "Size", "That of the disk, not of a compressed file, such as 10Gi."),
      field(storageClass, "Storage class (optional)"), classes,
      error, progress, element("div", { class: "group" }, send)),
    body);
  follow(place.current());
  namesIn("/apis/storage.k8s.io/v1/storageclasses").then((names) =>
    classes.replaceChildren(...names.map((one) => element("option", { value: one }))), () => {});
  return () => {
    state.stop();
    sending?.abort();
  };
}

/// The browser asks before it leaves the page.
function warn(event) {
  event.preventDefault();
}

function removeButton(namespace, { metadata: { name } }) {
  return deleteButton({
    name, ask: "The claim of the same name and its data are deleted, too.",
    right: { group: GROUP, resource: PLURAL, verb: "delete", namespace },
    remove: () => call("DELETE", `${volumesOf(namespace)}/${name}`),
  });
}
