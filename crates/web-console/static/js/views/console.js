// The serial console of a guest.

import { element, fill } from "../dom.js";
import { endOf, openStream } from "../stream.js";
import { TerminalView } from "../terminal/view.js";

export function console_(main, { namespace, name }) {
  const back = element("a", { class: "button", href: `#/vm/${namespace}/${name}` }, "Back");
  const state = element("span", { role: "status", class: "grow help" });
  const again = element("button", { type: "button", hidden: true, on: { click: connect } }, "Connect again");
  const encoder = new TextEncoder();
  let socket;
  const terminal = new TerminalView({
    label: `Serial console of ${name}`,
    onText: (text) => socket && socket.readyState === socket.OPEN && socket.send(encoder.encode(text)),
    onLeave: () => back.focus(),
  });

  function connect() {
    let wasOpen = false;
    again.hidden = true;
    state.textContent = "Connecting…";
    let mine;
    try {
      mine = socket = openStream({ namespace, name }, "console");
    } catch (error) {
      state.textContent = error.message;
      return;
    }
    mine.addEventListener("open", () => {
      wasOpen = true;
      state.textContent = "Connected. Ctrl+] leaves the console.";
      terminal.focus();
    });
    mine.addEventListener("message", ({ data }) => terminal.write(data));
    mine.addEventListener("close", (event) => {
      if (mine !== socket) return;
      state.textContent = endOf(event, wasOpen);
      again.hidden = false;
    });
  }

  fill(main, element("div", { class: "bar" }, element("h1", {}, name), state, again, back), terminal.element);
  connect();
  return () => {
    const closed = socket;
    socket = undefined;
    closed?.close();
  };
}
