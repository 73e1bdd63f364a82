// Colours and attributes of text (SGR).

export const PLAIN = Object.freeze({});

const NAMED = ["#1c1f22", "#d05a55", "#6bb36f", "#c9a24a", "#5f93d6", "#b077c4", "#4fb3b5", "#d8dadc",
  "#7b8188", "#ff8f8a", "#9be09f", "#f0cd78", "#8fb9f5", "#d6a5e6", "#84dcdd", "#ffffff"];

const ATTRIBUTES = { 1: "bold", 2: "faint", 3: "italic", 4: "underline", 7: "inverse" };
const ENDED = { 22: ["bold", "faint"], 23: ["italic"], 24: ["underline"], 27: ["inverse"], 39: ["ink"], 49: ["paper"] };

/// One of 256 colours: names, a cube, greys.
export function colour(index) {
  if (index < 16) return NAMED[index];
  if (index >= 232) return `rgb(${Array(3).fill(8 + (index - 232) * 10).join(" ")})`;
  const level = (part) => (part === 0 ? 0 : 55 + part * 40);
  const at = index - 16;
  return `rgb(${level(Math.floor(at / 36))} ${level(Math.floor(at / 6) % 6)} ${level(at % 6)})`;
}

/// The style after these numbers.
export function styled(style, numbers) {
  const next = { ...style };
  const queue = numbers.length ? [...numbers] : [0];
  while (queue.length) {
    const number = queue.shift();
    if (number === 0) for (const key of Object.keys(next)) delete next[key];
    else if (ATTRIBUTES[number]) next[ATTRIBUTES[number]] = true;
    else if (ENDED[number]) for (const key of ENDED[number]) delete next[key];
    else if (number === 38 || number === 48) next[number === 38 ? "ink" : "paper"] = extended(queue);
    else if (number >= 30 && number <= 37) next.ink = NAMED[number - 30];
    else if (number >= 40 && number <= 47) next.paper = NAMED[number - 40];
    else if (number >= 90 && number <= 97) next.ink = NAMED[number - 82];
    else if (number >= 100 && number <= 107) next.paper = NAMED[number - 92];
  }
  return Object.freeze(next);
}

function extended(queue) {
  const byte = () => Math.min(255, queue.shift() ?? 0);
  const kind = queue.shift();
  if (kind === 5) return colour(byte());
  if (kind === 2) return `rgb(${byte()} ${byte()} ${byte()})`;
  return undefined;
}
