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

/**
 * @typedef {object} Options
 * @property {(change: import("./events.js").Change) => boolean} [follows] Which changes make the answer out of date.
 * @property {string} [about] What the question is about, if it is less than the question: while another question about
 *   the same is asked, the former answer is still a true one, for example a coarser one, and stays. Any other former
 *   answer is gone at once: no view shows it under the words of another question.
 */

/**
 * The answer to a question, asked again whenever something has changed that it depends on.
 * @template [T=any]
 * @param {string | null} url Null asks nothing.
 * @param {Options} [options]
 * @returns {Answer<T>}
 */
export function useAnswer(url, options = {}) {
  return useAsked(url, (signal) => get(/** @type {string} */ (url), signal), options);
}

/**
 * The answers to several questions, in their order, asked again together.
 * @param {string[]} urls
 * @param {Options} [options]
 * @returns {Answer<any[]>}
 */
export function useAnswers(urls, options = {}) {
  return useAsked(urls.join("\n"), (signal) => Promise.all(urls.map((url) => get(url, signal))), options);
}

/**
 * @param {string | null} key What is asked; another key asks anew.
 * @param {(signal: AbortSignal) => Promise<any>} ask
 * @param {Options} options
 * @returns {Answer<any>}
 */
function useAsked(key, ask, { follows = always, about = key ?? "" }) {
  const [state, setState] = useState(/** @type {Asked} */ ({ key: null, about: "", value: undefined, error: null }));
  const again = useRef(() => {});
  const reload = useCallback(() => again.current(), []);
  useChanges(follows, reload);
  useLayoutEffect(() => {
    if (key === null) return undefined;
    const canceler = new AbortController();
    const isOutdated = () => canceler.signal.aborted;
    again.current = coalesced(async () => {
      try {
        const value = await ask(canceler.signal);
        remember(key, value);
        if (!isOutdated()) setState({ key, about, value, error: null });
      } catch (error) {
        if (!isOutdated()) setState((last) => ({ key, about, value: valueFor(key, about, last), error: /** @type {any} */ (error) }));
      }
    });
    again.current();
    return () => canceler.abort();
  }, [key]);
  return { value: valueFor(key, about, state), error: state.key === key ? state.error : null, isLoading: state.key !== key, reload };
}

/** @typedef {{key: string | null, about: string, value: any, error: import("./api.js").ApiError | null}} Asked The last question that was answered. */

/** What may be shown for a question. @param {string | null} key @param {string} about @param {Asked} last */
function valueFor(key, about, last) {
  if (key === null) return undefined;
  if (last.key === key && last.value !== undefined) return last.value;
  return known.get(key) ?? (last.about === about ? last.value : undefined);
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
