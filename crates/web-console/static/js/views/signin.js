// Asks for the link, when the page was opened without one that is valid.

import { element, fill } from "../dom.js";
import { signIn } from "../session.js";

export function signin(main, onDone) {
  const error = element("p", { class: "error", role: "alert" });
  const input = element("input", {
    id: "link", type: "password", autocomplete: "off", required: true, "aria-describedby": "link-help",
  });
  const submit = async (event) => {
    event.preventDefault();
    const failure = await signIn(input.value);
    if (failure) error.textContent = failure;
    else onDone();
  };
  const form = element(
    "form", { class: "card", on: { submit } },
    element("h1", {}, "Sign in"),
    element("p", {}, "Open the link that ", element("code", {}, "virtctl ui"),
      " printed last, or paste it here. A link works once and for one tab."),
    element("div", { class: "field" },
      element("label", { for: "link" }, "Link"), input,
      element("span", { id: "link-help", class: "help" },
        "The page has the rights of the user of your kubeconfig, for as long as virtctl ui runs.")),
    error,
    element("button", { class: "main" }, "Sign in"),
  );
  fill(main, form);
  input.focus();
}
