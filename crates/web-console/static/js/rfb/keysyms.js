// The numbers of keys in the X protocol, which VNC uses.

const NAMED = {
  Backspace: 0xff08, Tab: 0xff09, Enter: 0xff0d, Pause: 0xff13, ScrollLock: 0xff14, Escape: 0xff1b,
  Home: 0xff50, ArrowLeft: 0xff51, ArrowUp: 0xff52, ArrowRight: 0xff53, ArrowDown: 0xff54, PageUp: 0xff55,
  PageDown: 0xff56, End: 0xff57, PrintScreen: 0xff61, Insert: 0xff63, ContextMenu: 0xff67, NumLock: 0xff7f,
  CapsLock: 0xffe5, Delete: 0xffff, AltGraph: 0xfe03,
};
/// Left and right ones differ.
const SIDED = {
  ShiftLeft: 0xffe1, ShiftRight: 0xffe2, ControlLeft: 0xffe3, ControlRight: 0xffe4, MetaLeft: 0xffe7,
  MetaRight: 0xffe8, AltLeft: 0xffe9, AltRight: 0xffea,
};

/// The number of a key; undefined if it has none.
export function keysym({ key, code }) {
  if (key === "AltGraph") return NAMED.AltGraph;
  if (SIDED[code]) return SIDED[code];
  if (NAMED[key]) return NAMED[key];
  const functionKey = key.match(/^F(\d{1,2})$/);
  if (functionKey) return 0xffbd + Number(functionKey[1]);
  const [character, ...more] = key;
  if (!character || more.length) return undefined;
  const point = character.codePointAt(0);
  const isLatin = (point >= 0x20 && point <= 0x7e) || (point >= 0xa0 && point <= 0xff);
  return isLatin ? point : 0x1000000 + point;
}

export const CTRL_ALT_DELETE = [SIDED.ControlLeft, SIDED.AltLeft, NAMED.Delete];
