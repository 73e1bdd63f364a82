// Messages of a VNC viewer to the server (RFC 6143).

/// Four bytes for each point, in the order of a canvas: red, green, blue, unused.
export function pixelFormat() {
  return Uint8Array.of(0, 0, 0, 0, 32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 0, 8, 16, 0, 0, 0);
}

export function encodings(list) {
  const view = new DataView(new ArrayBuffer(4 + list.length * 4));
  view.setUint8(0, 2);
  view.setUint16(2, list.length);
  list.forEach((number, index) => view.setInt32(4 + index * 4, number));
  return view;
}

export function updateRequest({ isIncremental, width, height }) {
  const view = new DataView(new ArrayBuffer(10));
  view.setUint8(0, 3);
  view.setUint8(1, isIncremental ? 1 : 0);
  view.setUint16(6, width);
  view.setUint16(8, height);
  return view;
}

export function keyEvent(keysym, isDown) {
  const view = new DataView(new ArrayBuffer(8));
  view.setUint8(0, 4);
  view.setUint8(1, isDown ? 1 : 0);
  view.setUint32(4, keysym);
  return view;
}

export function pointerEvent({ x, y, buttons }) {
  const view = new DataView(new ArrayBuffer(6));
  view.setUint8(0, 5);
  view.setUint8(1, buttons);
  view.setUint16(2, x);
  view.setUint16(4, y);
  return view;
}
