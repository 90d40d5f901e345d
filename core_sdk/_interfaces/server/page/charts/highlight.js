/** The curve that somebody points at: it stands out in every chart, in the list of trials and in legends. */

import { useEffect, useReducer } from "../preact.js";

/** @type {string | null} */
let key = null;
/** @type {Set<() => void>} */
const watchers = new Set();

/** The key of the curves that stand out; null if none does. */
export const highlighted = () => key;

/** Lets the curves with this key stand out. @param {string | null} next */
export function highlight(next) {
  if (next === key) return;
  key = next;
  for (const watcher of watchers) watcher();
}

/** Calls `watcher` when other curves stand out, until the function that is returned is called. @param {() => void} watcher */
export function watchHighlight(watcher) {
  watchers.add(watcher);
  return () => {
    watchers.delete(watcher);
  };
}

/** Returns whether the curves with this key stand out. @param {string | null} own */
export function useIsHighlighted(own) {
  const [, draw] = useReducer((/** @type {number} */ number) => number + 1, 0);
  useEffect(() => {
    let was = own === key;
    return watchHighlight(() => {
      if ((own === key) !== was) draw(0);
      was = own === key;
    });
  }, [own]);
  return own === key;
}

/** Makes an element point at the curves with a key. @param {string} own */
export const pointingAt = (own) => ({ onPointerEnter: () => highlight(own), onPointerLeave: () => highlight(null) });
