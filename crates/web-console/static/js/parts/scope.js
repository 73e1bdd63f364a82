// The namespace that a list shows. All lists of a tab share it.

import { element } from "../dom.js";
import { ownNamespace } from "../session.js";
import { namespaceField } from "./namespace.js";

const CHOSEN = "ferrovirt.shown-namespace";

/// The namespace chosen last; empty for all.
export function chosenNamespace() {
  return sessionStorage.getItem(CHOSEN) ?? "";
}

export function chooseNamespace(namespace) {
  sessionStorage.setItem(CHOSEN, namespace);
}

/// A field for one namespace, which starts with the one chosen last, or with the user's own. `onChange` gets each
/// other one.
export function scope(onChange) {
  const controls = namespaceField({
    id: "namespace", value: chosenNamespace() || ownNamespace(), required: true, on: { change },
  });
  const [input] = controls;
  const current = () => input.value.trim() || ownNamespace();

  function change() {
    input.value = current();
    chooseNamespace(current());
    onChange(current());
  }

  const row = element("div", {}, element("label", { for: "namespace" }, "Namespace"), controls);
  return { row, current };
}
