/** The lines of an output that fit a filter, found part by part as they come into view. */

import { useCallback, useEffect, useReducer, useRef } from "../../preact.js";
import { address, get } from "../../state/api.js";
/** @import { LogLine, QueryOf } from "api" */
/** @import { ApiError } from "../../state/api.js" */

const LIMIT = 1000;
const PAUSE_MS = 150;

/**
 * @param {{trial: number, query: QueryOf<readonly ["trials", number, "logs"]>} | null} question Null finds nothing.
 * @param {number} numLines How long the output is: when it grows, the search goes on.
 */
export function useFoundLines(question, numLines) {
  const [, draw] = useReducer((/** @type {number} */ number) => number + 1, 0);
  const text = JSON.stringify(question);
  const state = useRef(beginning(text));

  const goOn = useCallback(async () => {
    const search = state.current;
    if (question === null || search.isSearching) return;
    search.isSearching = true;
    try {
      const { page } = await get(
        address(["trials", question.trial, "logs"], { ...question.query, first: search.next, limit: LIMIT }),
        search.canceler.signal,
      );
      search.lines.push(...page.lines);
      search.next = page.next_line ?? page.num_lines;
      search.isAtEnd = page.next_line === null;
      search.error = null;
    } catch (error) {
      if (search.canceler.signal.aborted) return;
      search.error = /** @type {ApiError} */ (error);
      search.isAtEnd = true;
    }
    search.isSearching = false;
    draw(0);
    // A part of a long output may hold no such line at all.
    if (!search.isAtEnd && search.lines.length < search.wanted) goOn();
  }, [text]);

  useEffect(() => {
    state.current.canceler.abort();
    state.current = beginning(text);
    draw(0);
    const timer = setTimeout(goOn, PAUSE_MS);
    return () => clearTimeout(timer);
  }, [goOn]);
  useEffect(() => {
    if (state.current.isAtEnd && !state.current.error) goOn();
  }, [numLines]);

  const need = useCallback(
    (/** @type {number} */ _, /** @type {number} */ last) => {
      const search = state.current;
      search.wanted = Math.max(search.wanted, last + LIMIT / 2);
      if (!search.isAtEnd && search.lines.length < search.wanted) goOn();
    },
    [goOn],
  );
  // Lines of a former search are gone at once.
  const { lines, isSearching, isAtEnd, error } = state.current.text === text ? state.current : beginning(text);
  return { lines, isSearching: isSearching || (question !== null && !isAtEnd && lines.length === 0), error, need };
}

/**
 * @typedef {object} Found
 * @property {string} text The question.
 * @property {LogLine[]} lines
 * @property {number} next The number of the line from which the search goes on.
 * @property {number} wanted How many lines are looked for.
 * @property {boolean} isAtEnd
 * @property {boolean} isSearching
 * @property {ApiError | null} error
 * @property {AbortController} canceler
 */

/** @param {string} text @returns {Found} */
const beginning = (text) => ({
  text,
  lines: [],
  next: 0,
  wanted: LIMIT / 2,
  isAtEnd: false,
  isSearching: false,
  error: null,
  canceler: new AbortController(),
});
