/** Stretches of a long list that the server keeps: those in view are asked for, the others are not. */

import { useCallback, useLayoutEffect, useReducer, useRef } from "../preact.js";
import { get } from "./api.js";
import { RETRY_MS } from "./answers.js";
import { coalesced } from "./coalescing.js";
import { useChanges } from "./events.js";
/** @import { Address } from "api" */
/** @import { ApiError } from "./api.js" */
/** @import { Change } from "./events.js" */

/**
 * @template Row, Answer
 * @typedef {object} Windows
 * @property {number} total The length of the list; -1 before it is known.
 * @property {boolean} isOutdated Whether the rows are of a former question about the same, until the new ones are there.
 * @property {Answer | undefined} answer The newest answer, with what it says besides its rows.
 * @property {ApiError | null} error
 * @property {(index: number) => Row | undefined} rowAt Undefined for a row that was not read yet.
 * @property {(first: number, last: number) => void} need Reads the rows from `first` to `last` (exclusive), unless they are there.
 * @property {() => void} reload
 */

/**
 * @template Row, Answer
 * @param {((first: number, limit: number) => Address<Answer>) | null} urlOf The question for a stretch; a new function is a new list.
 * @param {(answer: Answer) => {rows: Row[], total: number}} read
 * @param {{size: number, about: string, follows: (change: Change) => boolean}} options
 *   `about` as in an answer: the rows of a list about something else are gone at once.
 * @returns {Windows<Row, Answer>}
 */
export function useWindows(urlOf, read, { size, about, follows }) {
  const [, draw] = useReducer(increased, 0);
  const list = useRef(/** @type {List<Row, Answer>} */ (nothing));
  const viewed = useRef([0, 1]);
  const again = useRef(() => {});

  const ask = useCallback(
    async (/** @type {number} */ index, /** @type {List<Row, Answer>} */ into) => {
      if (into.urlOf === null || into.size !== size || into.asked.has(index)) return;
      into.asked.add(index);
      try {
        const answer = await get(into.urlOf(index * size, size), into.canceler.signal);
        const { rows, total } = read(answer);
        into.windows.set(index, rows);
        Object.assign(into, { total, answer, error: null });
        // A list whose first rows are there replaces the former one, which was seen until now.
        if (into.number > list.current.number) list.current = into;
      } catch (error) {
        if (into.canceler.signal.aborted) return;
        into.asked.delete(index);
        if (list.current.about !== into.about) list.current = into;
        list.current.error = /** @type {ApiError} */ (error);
        if (list.current.error.isPassing) setTimeout(() => into.canceler.signal.aborted || again.current(), RETRY_MS);
      }
      draw(0);
    },
    [read, size],
  );

  useLayoutEffect(() => {
    const canceler = new AbortController();
    viewed.current = [0, 1];
    again.current = coalesced(async () => {
      const next = /** @type {List<Row, Answer>} */ (emptyList(urlOf, about, size, canceler));
      const [first, last] = viewed.current;
      await Promise.all(indicesOf(first, Math.max(last, 1), size).map((index) => ask(index, next)));
    });
    again.current();
    return () => canceler.abort();
  }, [ask, urlOf]);
  const reload = useCallback(() => again.current(), []);
  useChanges(follows, reload);

  const need = useCallback(
    (/** @type {number} */ first, /** @type {number} */ last) => {
      viewed.current = [first, last];
      for (const index of indicesOf(first, last, size)) ask(index, list.current);
    },
    [ask],
  );
  const shown = list.current.about === about ? list.current : nothing;
  const rowAt = (/** @type {number} */ index) => shown.windows.get(Math.floor(index / shown.size))?.[index % shown.size];
  const { total, answer, error } = shown;
  const isOutdated = (shown.urlOf !== urlOf || shown.size !== size) && error === null;
  return { total, answer, error, isOutdated, rowAt, need, reload };
}

/** The stretches in which the rows from `first` to `last` (exclusive) lie. */
function indicesOf(/** @type {number} */ first, /** @type {number} */ last, /** @type {number} */ size) {
  const begin = Math.floor(first / size);
  return Array.from({ length: Math.max(0, Math.ceil(last / size) - begin) }, (_, offset) => begin + offset);
}

let numLists = 0;

/**
 * @template Row, Answer
 * @typedef {object} List
 * @property {((first: number, limit: number) => Address<Answer>) | null} urlOf
 * @property {string} about
 * @property {number} size
 * @property {AbortController} canceler
 * @property {number} number A later list has a greater one.
 * @property {Map<number, Row[]>} windows
 * @property {Set<number>} asked
 * @property {number} total
 * @property {Answer | undefined} answer
 * @property {ApiError | null} error
 */

/**
 * @template Row, Answer
 * @param {List<Row, Answer>["urlOf"]} urlOf
 * @param {string} about
 * @param {number} size
 * @param {AbortController} canceler
 * @returns {List<Row, Answer>}
 */
const emptyList = (urlOf, about, size, canceler) => ({
  urlOf,
  about,
  size,
  canceler,
  number: (numLists += 1),
  windows: new Map(),
  asked: new Set(),
  total: -1,
  answer: undefined,
  error: null,
});

/** The empty list of rows of any kind. @type {List<any, any>} It has none, so it is a list of each kind. */
const nothing = emptyList(null, "", 1, new AbortController());

const increased = (/** @type {number} */ number) => number + 1;
