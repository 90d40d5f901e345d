/** Answers of the server that follow what changes. */

import { useCallback, useLayoutEffect, useRef, useState } from "../preact.js";
import { get } from "./api.js";
import { coalesced } from "./coalescing.js";
import { useChanges } from "./events.js";
/** @import { Address } from "api" */
/** @import { ApiError } from "./api.js" */
/** @import { Change } from "./events.js" */

/**
 * @template T
 * @typedef {object} Answer
 * @property {T | undefined} value The newest that is known; undefined before the first.
 * @property {ApiError | null} error Why there is no newer one.
 * @property {boolean} isLoading
 * @property {() => void} reload
 */

/**
 * @typedef {object} Options
 * @property {(change: Change) => boolean} [follows] Which changes make the answer out of date.
 * @property {string} [about] What the question is about, if it is less than the question: while another question about
 *   the same is asked, the former answer is still a true one, for example a coarser one, and stays. Any other former
 *   answer is gone at once: no view shows it under the words of another question.
 */

/** After how long a question is asked again that the server could not answer then. */
export const RETRY_MS = 2000;

/** The options of a question that is asked once: nothing makes its answer out of date. @type {Options} */
export const once = { follows: () => false };

/**
 * The answer to a question, asked again whenever something has changed that it depends on.
 * @template T
 * @param {Address<T> | null} url Null asks nothing.
 * @param {Options} [options]
 * @returns {Answer<T>}
 */
export function useAnswer(url, options = {}) {
  return useAsked(url, (signal) => get(/** @type {Address<T>} */ (url), signal), options);
}

/**
 * The answers to several questions, in their order, asked again together.
 * @template T
 * @param {Address<T>[]} urls
 * @param {Options} [options]
 * @returns {Answer<T[]>}
 */
export function useAnswers(urls, options = {}) {
  return useAsked(urls.join("\n"), (signal) => Promise.all(urls.map((url) => get(url, signal))), options);
}

/**
 * @template T
 * @param {string | null} key What is asked; another key asks again.
 * @param {(signal: AbortSignal) => Promise<T>} ask
 * @param {Options} options
 * @returns {Answer<T>}
 */
function useAsked(key, ask, { follows = always, about = key ?? "" }) {
  const [state, setState] = useState(/** @type {Asked<T>} */ ({ key: null, about: "", value: undefined, error: null }));
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
        if (/** @type {ApiError} */ (error).isPassing) setTimeout(() => isOutdated() || reload(), RETRY_MS);
        if (!isOutdated()) setState((last) => ({ key, about, value: valueFor(key, about, last), error: /** @type {ApiError} */ (error) }));
      }
    });
    again.current();
    return () => canceler.abort();
  }, [key]);
  return { value: valueFor(key, about, state), error: state.key === key ? state.error : null, isLoading: state.key !== key, reload };
}

/**
 * The last question that was answered.
 * @template T
 * @typedef {{key: string | null, about: string, value: T | undefined, error: ApiError | null}} Asked
 */

/**
 * What may be shown for a question.
 * @template T
 * @param {string | null} key
 * @param {string} about
 * @param {Asked<T>} last
 * @returns {T | undefined}
 */
function valueFor(key, about, last) {
  if (key === null) return undefined;
  if (last.key === key && last.value !== undefined) return last.value;
  return known.get(key) ?? (last.about === about ? last.value : undefined);
}

/**
 * The newest answers: a view that was left shows them at once when it is seen again, until it knows better.
 * @type {Map<string, any>} Each is what its question gives, which is known where it is asked.
 */
const known = new Map();
const MAX_KNOWN = 60;

function remember(/** @type {string} */ key, /** @type {unknown} */ value) {
  known.delete(key);
  known.set(key, value);
  if (known.size > MAX_KNOWN) known.delete(/** @type {string} */ (known.keys().next().value));
}

const always = () => true;
