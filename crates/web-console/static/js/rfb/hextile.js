// The encoding Hextile: tiles of 16 by 16 points, of few colours each.

const RAW = 1;
const BACKGROUND = 2;
const FOREGROUND = 4;
const PARTS = 8;
const COLOURED = 16;

export async function hextile(bytes, { x, y, width, height }, canvas) {
  let paper = [0, 0, 0];
  let ink = [0, 0, 0];
  for (let top = y; top < y + height; top += 16) {
    for (let left = x; left < x + width; left += 16) {
      const tile = { x: left, y: top, width: Math.min(16, x + width - left), height: Math.min(16, y + height - top) };
      const flags = await bytes.byte();
      if (flags & RAW) {
        canvas.draw(tile, await bytes.take(tile.width * tile.height * 4));
        continue;
      }
      if (flags & BACKGROUND) paper = await bytes.take(4);
      if (flags & FOREGROUND) ink = await bytes.take(4);
      canvas.paint(tile, paper);
      const count = flags & PARTS ? await bytes.byte() : 0;
      for (let part = 0; part < count; part += 1) {
        const colour = flags & COLOURED ? await bytes.take(4) : ink;
        const [place, size] = await bytes.take(2);
        canvas.paint({ x: left + (place >> 4), y: top + (place & 15), width: (size >> 4) + 1, height: (size & 15) + 1 }, colour);
      }
    }
  }
}
