/** Answers of the server that follow what changes. */

import { useCallback, useEffect, useRef, useState } from "../preact.js";
import { get } from "./api.js";
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
 * The answer to a question, asked again whenever something has changed that it depends on.
 *
 * A former answer to another question stays in `value` until the new one is there, so that a view does not flicker.
 * @template [T=any]
 * @param {string | null} url Null asks nothing.
 * @param {{follows?: (change: import("./events.js").Change) => boolean}} [options]
 * @returns {Answer<T>}
 */
export function useAnswer(url, { follows = always } = {}) {
  const [state, setState] = useState({ url: /** @type {string | null} */ (null), value: undefined, error: null });
  const [request, setRequest] = useState(0);
  const asking = useRef({ isUnderway: false, isWanted: false });
  const reload = useCallback(() => {
    // Changes that come while an answer is under way lead to one more question, not to one for each.
    if (asking.current.isUnderway) asking.current.isWanted = true;
    else setRequest((last) => last + 1);
  }, []);
  useChanges(follows, reload);

  useEffect(() => {
    if (url === null) return undefined;
    const canceler = new AbortController();
    asking.current = { isUnderway: true, isWanted: false };
    get(url, canceler.signal)
      .then((value) => setState({ url, value, error: null }))
      .catch((error) => {
        if (error.name !== "AbortError") setState((last) => ({ ...last, url, error }));
      })
      .finally(() => {
        if (canceler.signal.aborted) return;
        const { isWanted } = asking.current;
        asking.current = { isUnderway: false, isWanted: false };
        if (isWanted) setRequest((last) => last + 1);
      });
    return () => canceler.abort();
  }, [url, request]);

  return { value: state.value, error: state.url === url ? state.error : null, isLoading: state.url !== url, reload };
}

/**
 * The answers to several questions, in their order, asked again together.
 * @param {string[]} urls
 * @param {{follows?: (change: import("./events.js").Change) => boolean}} [options]
 * @returns {Answer<any[]>}
 */
export function useAnswers(urls, { follows = always } = {}) {
  const [state, setState] = useState({ key: "", value: undefined, error: null });
  const [request, setRequest] = useState(0);
  const reload = useCallback(() => setRequest((last) => last + 1), []);
  useChanges(follows, reload);
  const key = urls.join("\n");
  useEffect(() => {
    const canceler = new AbortController();
    Promise.all(urls.map((url) => get(url, canceler.signal)))
      .then((value) => setState({ key, value: /** @type {any} */ (value), error: null }))
      .catch((error) => error.name !== "AbortError" && setState((last) => ({ ...last, key, error })));
    return () => canceler.abort();
  }, [key, request]);
  return { value: state.value, error: state.key === key ? state.error : null, isLoading: state.key !== key, reload };
}

const always = () => true;
