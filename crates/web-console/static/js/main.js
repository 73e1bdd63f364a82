// Starts the page.

import { drawAccount } from "./parts/account.js";
import { notify } from "./parts/notice.js";
import { forget } from "./rights.js";
import { leaveAll, show } from "./routes.js";
import { key, signInFromAddress, signOut } from "./session.js";
import { installTheme } from "./theme.js";
import { signin } from "./views/signin.js";

const main = document.getElementById("main");

function draw(message) {
  drawAccount(document.getElementById("account"), () => leave(""));
  if (key()) show(main);
  else signin(main, () => draw(), message);
}

/// Ends the session of this tab. Answers about the rights of its user are those of nobody else.
function leave(message) {
  if (!key()) return;
  signOut();
  forget();
  leaveAll();
  draw(message);
}

async function followAddress() {
  const failure = await signInFromAddress();
  if (failure) notify(failure, "bad");
  draw();
}

document.addEventListener("signed-out", ({ detail }) => leave(detail));

/// Single letters are shortcuts, unless they are typed into a field.
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, canvas, dialog");
  if (typing || event.ctrlKey || event.altKey || event.metaKey || !key()) return;
  const filter = document.getElementById("filter");
  if (event.key === "/" && filter) filter.focus();
  else if (event.key === "c") location.hash = "#/create";
  else if (event.key === "l") location.hash = "#/";
  else if (event.key === "e" && location.hash.startsWith("#/vm/")) location.hash = location.hash.replace("vm", "edit");
  else return;
  event.preventDefault();
});

installTheme(document.getElementById("theme"));
window.addEventListener("hashchange", followAddress);
followAddress();
