// A VNC viewer: reads the guest's screen from a websocket.

import { Bytes } from "./bytes.js";
import { handshake } from "./handshake.js";
import { encodings, pixelFormat, updateRequest } from "./messages.js";
import { ENCODINGS, Picture, update } from "./update.js";

const UPDATE = 0;
const COLOURS = 1;
const BELL = 2;
const CLIPBOARD = 3;

/// Runs a session until it ends, and throws why it ended. `onReady` is called once, with a function that
/// sends messages.
export async function view(socket, canvas, { onReady, endOf }) {
  const bytes = new Bytes();
  let wasOpen = false;
  socket.addEventListener("open", () => (wasOpen = true));
  socket.addEventListener("message", ({ data }) => bytes.push(data));
  socket.addEventListener("close", (event) => bytes.end(endOf(event, wasOpen)));
  const send = (message) => socket.readyState === WebSocket.OPEN && socket.send(message);
  const picture = new Picture(canvas);
  const { width, height } = await handshake(bytes, send);
  picture.resize(width, height);
  send(pixelFormat());
  send(encodings(ENCODINGS));
  onReady(send);
  const request = (isIncremental) => send(updateRequest({ isIncremental, width: canvas.width, height: canvas.height }));
  request(false);
  for (;;) {
    const kind = await bytes.byte();
    if (kind === UPDATE) {
      const before = `${canvas.width} ${canvas.height}`;
      await update(bytes, picture);
      // A new size comes without a picture.
      request(before === `${canvas.width} ${canvas.height}`);
    } else if (kind === COLOURS) await bytes.take((await bytes.view(5)).getUint16(3) * 6);
    else if (kind === CLIPBOARD) await bytes.take((await bytes.view(7)).getUint32(3));
    else if (kind !== BELL) throw new Error(`The VNC server sent an unknown message: ${kind}.`);
  }
}
