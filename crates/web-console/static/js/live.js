// A list of objects that keeps itself current, with what a view shows meanwhile.

import { watch } from "./watch.js";

/// Follows a collection and calls `onChange` after every change. The result has the objects, whether they were read,
/// and the failure, if there is one.
export function live(path, onChange, query = {}) {
  const state = { objects: [], isLoaded: false, failure: undefined };
  state.stop = watch(path, query, {
    onError: (failure) => ((state.failure = failure ?? undefined), onChange(state)),
    onObjects: (objects) => (Object.assign(state, { objects, isLoaded: true }), onChange(state)),
  });
  return state;
}

/// What the user is told when `what` cannot be read.
export function failureText(failure, what) {
  if (failure.code === 403) return `You have no right to list ${what}.`;
  if (failure.code === 404) return `This server has no ${what.split(" in namespace ")[0]}.`;
  return failure.message;
}
