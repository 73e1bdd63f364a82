// The screen of a guest.

import { element, fill } from "../dom.js";
import { view } from "../rfb/client.js";
import { listen } from "../rfb/input.js";
import { CTRL_ALT_DELETE } from "../rfb/keysyms.js";
import { keyEvent } from "../rfb/messages.js";
import { endOf, openStream } from "../stream.js";

export function screen(main, { namespace, name }) {
  const back = element("a", { class: "button", href: `#/vm/${namespace}/${name}` }, "Back");
  const state = element("span", { role: "status", class: "grow help" });
  const again = element("button", { type: "button", hidden: true, on: { click: connect } }, "Connect again");
  const keys = element("button", { type: "button", disabled: true }, "Ctrl+Alt+Del");
  const canvas = element("canvas", { tabindex: "0", role: "application", "aria-label": `Screen of ${name}` });
  let socket;
  let send = () => {};
  let ignore = () => {};
  keys.addEventListener("click", () => {
    for (const key of CTRL_ALT_DELETE) send(keyEvent(key, true));
    for (const key of CTRL_ALT_DELETE.toReversed()) send(keyEvent(key, false));
    canvas.focus();
  });

  async function connect() {
    again.hidden = true;
    state.textContent = "Connecting…";
    let mine;
    const onReady = (sender) => {
      send = sender;
      keys.disabled = false;
      state.textContent = "Connected. Ctrl+] leaves the screen.";
      ignore = listen(canvas, { send, onLeave: () => back.focus() });
      canvas.focus();
    };
    try {
      mine = socket = openStream({ namespace, name }, "vnc");
      await view(mine, canvas, { onReady, endOf });
    } catch (error) {
      ignore();
      mine?.close();
      if (mine !== socket) return;
      keys.disabled = true;
      state.textContent = error.message;
      again.hidden = false;
    }
  }

  fill(main, element("div", { class: "bar" }, element("h1", {}, name), state, again, keys, back),
    element("div", { class: "screen" }, canvas));
  connect();
  return () => {
    const closed = socket;
    socket = undefined;
    ignore();
    closed?.close();
  };
}
