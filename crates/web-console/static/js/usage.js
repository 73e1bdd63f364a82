// What guests use of their nodes: the server has counters since the start, two readings make rates.

import { call, subresource, SUBRESOURCES, VMIS } from "./api.js";
import { nameOf } from "./parts/guard.js";
import { may } from "./rights.js";
import { pause, visible } from "./watch.js";

const EVERY = 3000;
const FIRST = 1000;

/// The use of a guest, from two readings. A rate is per second, and undefined if its counter or the clock went
/// back, as after a move to another node.
export function usageOf(before, now) {
  const time = before ? now.clockMilliseconds - before.clockMilliseconds : 0;
  const rate = (name) => {
    const increase = now[name] - before?.[name];
    return time > 0 && increase >= 0 ? (increase * 1000) / time : undefined;
  };
  return {
    memory: now.memoryBytes, millicores: rate("cpuMilliseconds"),
    read: rate("diskReadBytes"), written: rate("diskWrittenBytes"),
    received: rate("networkReceivedBytes"), sent: rate("networkSentBytes"),
  };
}

/// Reads the use of the VMIs that `running` returns, one after the other, and calls `onUsage` with a map from
/// their UIDs. A use that cannot be read has a `problem`. Returns a function that stops.
export function followUsage(running, onUsage) {
  const stop = new AbortController();
  follow(running, onUsage, stop.signal);
  return () => stop.abort();
}

async function follow(running, onUsage, signal) {
  let before = new Map();
  while (!signal.aborted) {
    await visible(signal);
    const now = new Map();
    for (const { metadata } of running()) {
      if (signal.aborted) return;
      now.set(metadata.uid, await read(metadata, signal));
    }
    if (signal.aborted) return;
    onUsage(new Map([...now].map(([uid, one]) => [uid, one.problem ? one : usageOf(before.get(uid), one)])));
    await pause(before.size > 0 ? EVERY : FIRST, signal);
    before = now;
  }
}

async function read({ namespace, name }, signal) {
  const right = { group: SUBRESOURCES, resource: VMIS, subresource: "usage", verb: "get", namespace };
  if (!(await may(right))) return { problem: nameOf(right) };
  try {
    return await call("GET", subresource(VMIS, { namespace, name }, "usage"), { signal });
  } catch (error) {
    return { problem: error.message };
  }
}
