// The bytes of keys, as a terminal sends them.

const ARROWS = { ArrowUp: "A", ArrowDown: "B", ArrowRight: "C", ArrowLeft: "D", Home: "H", End: "F" };
const FIXED = {
  Enter: "\r", Backspace: "\x7f", Tab: "\t", Escape: "\x1b", Delete: "\x1b[3~", Insert: "\x1b[2~",
  PageUp: "\x1b[5~", PageDown: "\x1b[6~", F1: "\x1bOP", F2: "\x1bOQ", F3: "\x1bOR", F4: "\x1bOS",
  F5: "\x1b[15~", F6: "\x1b[17~", F7: "\x1b[18~", F8: "\x1b[19~", F9: "\x1b[20~", F10: "\x1b[21~",
  F11: "\x1b[23~", F12: "\x1b[24~",
};

/// Whether the key leaves the terminal: Ctrl+], as in virtctl console.
export function isLeave({ ctrlKey, key, code }) {
  return ctrlKey && (key === "]" || code === "BracketRight");
}

/// The text that a key sends; undefined for keys that type text by themselves or belong to the browser.
export function sent({ key, ctrlKey, altKey, shiftKey, metaKey }, { applicationKeys }) {
  if (metaKey || (ctrlKey && shiftKey)) return undefined;
  const prefix = altKey ? "\x1b" : "";
  if (ARROWS[key]) return prefix + (applicationKeys ? "\x1bO" : "\x1b[") + ARROWS[key];
  if (key === "Tab" && shiftKey) return "\x1b[Z";
  if (FIXED[key]) return prefix + FIXED[key];
  if (ctrlKey && key === " ") return "\x00";
  if (ctrlKey && /^[a-z@[\\\]^_]$/i.test(key)) return prefix + String.fromCharCode(key.toUpperCase().charCodeAt(0) & 31);
  if (altKey && key.length === 1) return prefix + key;
  return undefined;
}
