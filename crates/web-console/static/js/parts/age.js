// How long ago something was, in the largest unit.

const UNITS = [["d", 86_400], ["h", 3600], ["min", 60], ["s", 1]];

export function age(time, now = Date.now()) {
  if (!time) return "";
  const seconds = Math.max(0, Math.round((now - Date.parse(time)) / 1000));
  const [unit, length] = UNITS.find(([, length]) => seconds >= length) ?? UNITS.at(-1);
  return `${Math.floor(seconds / length)} ${unit}`;
}
