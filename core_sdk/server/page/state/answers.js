/** Answers of the server that follow what changes. */

import { useCallback, useLayoutEffect, useRef, useState } from "../preact.js";
import { get } from "./api.js";
import { coalesced } from "./coalescing.js";
import { useChanges } from "./events.js";

/**
 * @template T
 * @typedef {object} Answer
 * @property {T | undefined} value The newest that is known; undefined before the first.
 * @property {import("./api.js").ApiError | null} error Why there is no newer one.
 * @property {boolean} isLoading
 * @property {() => void} reload
 */

/** @typedef {{follows?: (change: import("./events.js").Change) => boolean}} Options Which changes make the answer out of date. */

/**
 * The answer to a question, asked again whenever something has changed that it depends on.
 *
 * A former answer to another question stays in `value` until the new one is there, so that a view does not flicker.
 * @template [T=any]
 * @param {string | null} url Null asks nothing.
 * @param {Options} [options]
 * @returns {Answer<T>}
 */
export function useAnswer(url, { follows = always } = {}) {
  return useAsked(url, (signal) => get(/** @type {string} */ (url), signal), follows);
}

/**
 * The answers to several questions, in their order, asked again together.
 * @param {string[]} urls
 * @param {Options} [options]
 * @returns {Answer<any[]>}
 */
export function useAnswers(urls, { follows = always } = {}) {
  return useAsked(urls.join("\n"), (signal) => Promise.all(urls.map((url) => get(url, signal))), follows);
}

/**
 * @param {string | null} key What is asked; another key asks anew.
 * @param {(signal: AbortSignal) => Promise<any>} ask
 * @param {(change: import("./events.js").Change) => boolean} follows
 * @returns {Answer<any>}
 */
function useAsked(key, ask, follows) {
  const [state, setState] = useState(() => ({ key: key !== null && known.has(key) ? key : null, value: known.get(key ?? ""), error: null }));
  const again = useRef(() => {});
  const reload = useCallback(() => again.current(), []);
  useChanges(follows, reload);
  useLayoutEffect(() => {
    if (key === null) return undefined;
    const canceler = new AbortController();
    again.current = coalesced(async () => {
      try {
        const value = await ask(canceler.signal);
        remember(key, value);
        setState({ key, value, error: null });
      } catch (error) {
        if (!canceler.signal.aborted) setState((last) => ({ ...last, key, error: /** @type {any} */ (error) }));
      }
    });
    again.current();
    return () => canceler.abort();
  }, [key]);
  return { value: state.value, error: state.key === key ? state.error : null, isLoading: state.key !== key, reload };
}

/** The newest answers: a view that was left shows them at once when it is seen again, until it knows better. */
const known = new Map();
const MAX_KNOWN = 60;

function remember(/** @type {string} */ key, /** @type {any} */ value) {
  known.delete(key);
  known.set(key, value);
  if (known.size > MAX_KNOWN) known.delete(known.keys().next().value);
}

const always = () => true;
