// The beginning of a VNC session (RFC 6143, section 7.1 to 7.3).

const NO_PASSWORD = 1;
const decoder = new TextDecoder();

/// Returns the size and name of the screen.
export async function handshake(bytes, send) {
  const version = decoder.decode(await bytes.take(12));
  if (!version.startsWith("RFB 003.")) throw new Error("The device is no VNC server.");
  if (version < "RFB 003.007") throw new Error(`The VNC server is too old: ${version.trim()}.`);
  send(new TextEncoder().encode("RFB 003.008\n"));
  const count = await bytes.byte();
  if (count === 0) throw new Error(`The VNC server refused: ${await reason(bytes)}`);
  const types = await bytes.take(count);
  if (!types.includes(NO_PASSWORD)) throw new Error("The VNC server asks for a password, which guests do not have.");
  send(Uint8Array.of(NO_PASSWORD));
  if ((await bytes.view(4)).getUint32(0) !== 0) throw new Error(`The VNC server refused: ${await reason(bytes)}`);
  // Other viewers stay connected, if the server allows several.
  send(Uint8Array.of(1));
  const start = await bytes.view(24);
  const name = decoder.decode(await bytes.take(Math.min(start.getUint32(20), 4096)));
  return { width: start.getUint16(0), height: start.getUint16(2), name };
}

async function reason(bytes) {
  const length = (await bytes.view(4)).getUint32(0);
  return decoder.decode(await bytes.take(Math.min(length, 4096)));
}
