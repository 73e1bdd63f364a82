// Asks who the user is: for the link of virtctl ui, or for a token, as the server wants it.

import { credentialsIn } from "../credentials.js";
import { element, fill } from "../dom.js";
import { signIn, signInWithToken, waysIn } from "../session.js";

/// A kubeconfig is small; a disk image that is chosen by mistake is not read.
const LONGEST = 1 << 20;

/// `message` says why the user is asked again.
export async function signin(main, onDone, message = "") {
  fill(main, element("p", { class: "empty", "aria-busy": "true" }, "Reading…"));
  const way = await waysIn();
  const parts = way === "token" ? byToken() : byLink();
  const error = element("p", { class: "error", role: "alert" }, message);
  const send = element("button", { class: "main" }, "Sign in");
  const submit = async (event) => {
    event.preventDefault();
    send.disabled = true;
    const failure = await parts.submit();
    send.disabled = false;
    if (failure) error.textContent = failure;
    else onDone();
  };
  fill(main, element("form", { class: "card narrow", on: { submit } },
    element("h1", {}, "Sign in"), parts.text, parts.rows, error, send));
  parts.input.focus();
}

function field(input, label, help) {
  const note = help && element("div", { class: "help", id: `${input.id}-help` }, help);
  if (note) input.setAttribute("aria-describedby", note.id);
  return element("div", { class: "field" }, element("label", { for: input.id }, label), input, note);
}

function byLink() {
  const input = element("input", { id: "link", type: "password", autocomplete: "off", required: true });
  const text = element("p", {}, "Open the link that ", element("code", {}, "virtctl ui"),
    " printed last, or paste it here. A link works once and for one tab.");
  const help = "The page has the rights of the user of your kubeconfig, for as long as virtctl ui runs.";
  return { input, text, rows: [field(input, "Link", help)], submit: () => signIn(input.value) };
}

function byToken() {
  const input = element("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false" });
  const file = element("input", { id: "kubeconfig", type: "file" });
  const namespace = element("input", { id: "own-namespace", autocomplete: "off", spellcheck: "false" });
  const text = element("p", {}, "Sign in with a token of a user or a service account, such as that of ",
    element("code", {}, "kubectl create token NAME"), ".");
  const submit = async () => {
    const [chosen] = file.files;
    if (!input.value.trim() && chosen?.size > LONGEST) return `${chosen.name} is too large to be a kubeconfig.`;
    const found = credentialsIn(input.value.trim() || (chosen ? await chosen.text() : ""));
    if (found.problem) return found.problem;
    return signInWithToken({ ...found, namespace: namespace.value.trim() || found.namespace });
  };
  const rows = [
    field(input, "Token", "It stays in this tab until you sign out or close it, and goes to the API server only."),
    field(file, "Or a kubeconfig whose user has a token", "It is read by the page and not sent anywhere."),
    field(namespace, "Namespace (optional)", "The one that is shown first."),
  ];
  return { input, text, rows, submit };
}
