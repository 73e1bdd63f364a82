// Keys and pointer on the canvas, as messages to the guest.

import { isLeave } from "../terminal/keys.js";
import { keysym } from "./keysyms.js";
import { keyEvent, pointerEvent } from "./messages.js";

/// Returns a function that removes the listeners.
export function listen(canvas, { send, onLeave }) {
  const stop = new AbortController();
  const on = (name, listener) => canvas.addEventListener(name, listener, { signal: stop.signal, passive: false });
  // By physical key: with Shift released first, the character differs between press and release.
  const pressed = new Map();
  const release = () => {
    for (const number of pressed.values()) send(keyEvent(number, false));
    pressed.clear();
  };
  on("keydown", (event) => {
    event.preventDefault();
    if (isLeave(event)) return release(), onLeave();
    const number = pressed.get(event.code) ?? keysym(event);
    if (number === undefined) return;
    pressed.set(event.code, number);
    send(keyEvent(number, true));
  });
  on("keyup", (event) => {
    event.preventDefault();
    const number = pressed.get(event.code);
    pressed.delete(event.code);
    if (number !== undefined) send(keyEvent(number, false));
  });
  on("blur", release);

  const place = ({ offsetX, offsetY }) => {
    const limit = (value, size) => Math.max(0, Math.min(size - 1, Math.round(value)));
    const scale = canvas.width / canvas.clientWidth;
    return { x: limit(offsetX * scale, canvas.width), y: limit(offsetY * scale, canvas.height) };
  };
  // The protocol has the middle button second, browsers have it third.
  const buttons = ({ buttons: held }) => (held & 1) | ((held & 4) >> 1) | ((held & 2) << 1);
  const point = (event) => {
    event.preventDefault();
    send(pointerEvent({ ...place(event), buttons: buttons(event) }));
  };
  on("pointerdown", (event) => {
    canvas.focus();
    canvas.setPointerCapture(event.pointerId);
    point(event);
  });
  on("pointerup", point);
  on("pointermove", point);
  on("contextmenu", (event) => event.preventDefault());
  on("wheel", (event) => {
    event.preventDefault();
    const turned = event.deltaY < 0 ? 8 : 16;
    const at = place(event);
    send(pointerEvent({ ...at, buttons: buttons(event) | turned }));
    send(pointerEvent({ ...at, buttons: buttons(event) }));
  });
  return () => stop.abort();
}
