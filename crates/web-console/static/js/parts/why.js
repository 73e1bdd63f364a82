// The diagnosis of a VM: what `virtctl why` prints.

import { call } from "../api.js";
import { element, fill } from "../dom.js";

const CLASSES = { broken: "bad", waiting: "busy", off: "off", notice: "off" };
/// Several objects change at once; the diagnosis is asked for once.
const TOGETHER = 300;

/// Keeps the diagnosis of a VM in `section`. Returns a function to call after changes.
export function followWhy(section, { namespace, name }) {
  fill(section, heading(), element("p", { class: "empty" }, "Reading…"));
  let timer;
  let latest = 0;
  const ask = async () => {
    const mine = ++latest;
    try {
      const diagnosis = await call("GET", `/console/why/${namespace}/${name}`);
      if (mine === latest) draw(section, diagnosis);
    } catch (error) {
      if (mine === latest) fill(section, heading(), element("p", { class: "error" }, error.message));
    }
  };
  return () => {
    clearTimeout(timer);
    timer = setTimeout(ask, TOGETHER);
  };
}

function heading() {
  return element("h2", {}, "Why");
}

function draw(section, { healthy, causes, warnings, unread }) {
  const sentence = healthy ? "Nothing is wrong." : "The VM is not healthy, for an unknown cause.";
  fill(section, heading(),
    causes.length === 0 && element("p", { class: healthy ? "good" : "bad" }, sentence),
    causes.map(cause),
    !healthy && warnings.slice(0, 3).map(({ object, reason, message }) =>
      element("p", { class: "help" }, `${object} ${reason}: ${message}`)),
    unread.map((text) => element("p", { class: "help" }, `Not read: ${text}`)));
}

function cause({ id, severity, sentence, evidence, remedy, next }) {
  return element("article", { "data-cause": id },
    element("p", { class: CLASSES[severity.toLowerCase()] ?? "" }, sentence),
    remedy && element("p", {}, remedy),
    element("ul", { class: "help" }, evidence.map(({ object, field, value }) =>
      element("li", {}, `${[object, field].filter(Boolean).join(" ")}: ${value}`))),
    element("p", {}, "Next: ", element("code", {}, next)));
}
