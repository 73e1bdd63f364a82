// Keeps a list of objects current: one list, then a watch, again after every failure.

import { ApiError, errorOf, send } from "./api.js";

const LONGEST = 30_000;

/// Calls `onObjects` with all objects after changes and `onError` with an error, or null when it is over.
/// Returns a function that stops. A hidden page does not watch, as a browser opens few connections to one
/// server, and all tabs share them.
export function watch(path, query, { onObjects, onError }) {
  const stop = new AbortController();
  let round = new AbortController();
  const objects = new Map();
  let drawing = 0;
  const changed = () => {
    drawing ||= requestAnimationFrame(() => {
      drawing = 0;
      if (!stop.signal.aborted) onObjects([...objects.values()]);
    });
  };

  async function run() {
    let failures = 0;
    while (!stop.signal.aborted) {
      round = new AbortController();
      try {
        await visible(stop.signal);
        await follow(path, query, round.signal, objects, () => {
          failures = 0;
          onError(null);
          changed();
        });
      } catch (error) {
        if (stop.signal.aborted) return;
        if (round.signal.aborted || error.code === 410) continue;
        onError(error);
        if (error instanceof ApiError && [401, 403, 404].includes(error.code)) return;
        failures += 1;
        await pause(Math.min(LONGEST, 500 * 2 ** failures), stop.signal);
      }
    }
  }

  const onVisibility = () => document.hidden && round.abort();
  document.addEventListener("visibilitychange", onVisibility);
  stop.signal.addEventListener("abort", () => {
    document.removeEventListener("visibilitychange", onVisibility);
    round.abort();
  });
  run();
  return () => stop.abort();
}

/// One list and the watches after it, until an error.
async function follow(path, query, signal, objects, onChange) {
  const response = await send("GET", path, { query, signal });
  if (!response.ok) throw await errorOf(response);
  const list = await response.json();
  objects.clear();
  for (const object of list.items) objects.set(object.metadata.uid, object);
  let version = list.metadata.resourceVersion;
  onChange();
  for (;;) {
    const more = { ...query, watch: "1", allowWatchBookmarks: "true", resourceVersion: version };
    const stream = await send("GET", path, { query: more, signal });
    if (!stream.ok) throw await errorOf(stream);
    for await (const { type, object } of lines(stream.body)) {
      if (type === "ERROR") throw new ApiError(object.code, object);
      version = object.metadata.resourceVersion;
      if (type === "DELETED") objects.delete(object.metadata.uid);
      else if (type !== "BOOKMARK") objects.set(object.metadata.uid, object);
      if (type !== "BOOKMARK") onChange();
    }
  }
}

async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const line of parts) if (line) yield JSON.parse(line);
  }
}

/// Waits until the page is shown.
export function visible(signal) {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    document.addEventListener("visibilitychange", resolve, { once: true, signal });
    signal.addEventListener("abort", resolve, { once: true });
  });
}

export function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
