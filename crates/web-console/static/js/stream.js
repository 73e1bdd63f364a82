// Websockets to a guest's devices.

import { subresource, VMIS } from "./api.js";
import { key } from "./session.js";

const PROTOCOL = "plain.kubevirt.io";
// Scripts cannot set headers of a websocket; the API server accepts credentials here, too.
const KEY_PROTOCOL = "base64url.bearer.authorization.k8s.io.";

const NO_WEBSOCKETS = "This browser has no websockets, which the console and the screen need; use virtctl console or "
  + "virtctl vnc.";

/// Opens a device of a guest: `console` or `vnc`.
export function openStream(target, device) {
  if (typeof WebSocket === "undefined") throw new Error(NO_WEBSOCKETS);
  const encoded = btoa(key()).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
  const url = new URL(subresource(VMIS, target, device), location.href);
  url.protocol = url.protocol.replace("http", "ws");
  const socket = new WebSocket(url, [PROTOCOL, KEY_PROTOCOL + encoded]);
  socket.binaryType = "arraybuffer";
  return socket;
}

/// Why a stream ended, for the user. A browser hides the answer to a handshake that failed.
export function endOf(event, wasOpen) {
  if (event.reason) return event.reason;
  if (wasOpen) return "The connection ended.";
  return "The connection was not opened: the guest does not run, lacks the device, or you have no right to it.";
}
