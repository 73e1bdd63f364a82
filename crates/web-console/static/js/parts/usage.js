// The use of a guest as figures.

import { element } from "../dom.js";

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
const FACTORS = { k: 1e3, M: 1e6, G: 1e9, T: 1e12, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40 };

/// Bytes in the largest unit of which there is at least one.
export function size(bytes) {
  if (bytes === undefined) return "–";
  const power = Math.min(UNITS.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(bytes, 1)) / 10)));
  const number = bytes / 2 ** (10 * power);
  return `${number.toFixed(number < 10 && power > 0 ? 1 : 0)} ${UNITS[power]}`;
}

/// The bytes of a quantity such as 1Gi; undefined if it is none.
export function bytesOf(quantity) {
  const [, number, unit] = String(quantity).match(/^(\d+(?:\.\d+)?)([KMGT]i|[kMGT])?$/) ?? [];
  return number && Number(number) * (FACTORS[unit] ?? 1);
}

/// A share of one CPU.
export function percent(millicores) {
  return millicores === undefined ? "–" : `${(millicores / 10).toFixed(1)} %`;
}

/// The figures of a guest with this many CPUs and this much memory.
export function figures(usage, { cores, memory }) {
  if (!usage) return element("p", { class: "empty" }, "Reading…");
  if (usage.problem) return element("p", { class: "help" }, `Not read: ${usage.problem}`);
  const all = bytesOf(memory);
  return element("dl", { class: "figures" },
    figure("CPU", `${percent(usage.millicores)} of ${cores}00 %`, usage.millicores, cores * 1000),
    figure("Memory", `${size(usage.memory)}${all ? ` for ${size(all)}` : ""}`, usage.memory, all),
    figure("Disk read", `${size(usage.read)}/s`), figure("Disk written", `${size(usage.written)}/s`),
    figure("Received", `${size(usage.received)}/s`), figure("Sent", `${size(usage.sent)}/s`));
}

function figure(label, text, value, max) {
  const meter = max && value !== undefined
    && element("meter", { "aria-label": label, min: 0, max, value: Math.min(value, max) });
  return element("div", {}, element("dt", {}, label), element("dd", {}, text, meter));
}
