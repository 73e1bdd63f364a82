// Changes of the guest's screen, drawn on a canvas.

import { hextile } from "./hextile.js";

const RAW = 0;
const COPY = 1;
const HEXTILE = 5;
const SIZE = -223;

/// In the order of preference.
export const ENCODINGS = [COPY, HEXTILE, RAW, SIZE];

/// A canvas with the operations of the protocol.
export class Picture {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
  }

  resize(width, height) {
    this.canvas.width = width;
    this.canvas.height = height;
  }

  draw({ x, y, width, height }, points) {
    for (let at = 3; at < points.length; at += 4) points[at] = 255;
    const data = new Uint8ClampedArray(points.buffer, points.byteOffset, points.length);
    this.context.putImageData(new ImageData(data, width, height), x, y);
  }

  paint({ x, y, width, height }, [red, green, blue]) {
    this.context.fillStyle = `rgb(${red} ${green} ${blue})`;
    this.context.fillRect(x, y, width, height);
  }

  copy({ x, y, width, height }, from) {
    this.context.drawImage(this.canvas, from.x, from.y, width, height, x, y, width, height);
  }
}

/// Draws one update.
export async function update(bytes, picture) {
  const count = (await bytes.view(3)).getUint16(1);
  for (let index = 0; index < count; index += 1) {
    const head = await bytes.view(12);
    const [x, y, width, height] = [0, 2, 4, 6].map((at) => head.getUint16(at));
    const area = { x, y, width, height };
    const encoding = head.getInt32(8);
    if (encoding === SIZE) picture.resize(width, height);
    else if (encoding === HEXTILE) await hextile(bytes, area, picture);
    else if (encoding === COPY) {
      const from = await bytes.view(4);
      picture.copy(area, { x: from.getUint16(0), y: from.getUint16(2) });
    } else if (encoding === RAW) {
      if (width && height) picture.draw(area, await bytes.take(width * height * 4));
    } else throw new Error(`The VNC server sent an unknown encoding: ${encoding}.`);
  }
}
