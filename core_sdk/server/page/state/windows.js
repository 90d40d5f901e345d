/** Stretches of a long list that the server keeps: those in view are asked for, the others are not. */

import { useCallback, useEffect, useReducer, useRef } from "../preact.js";
import { get } from "./api.js";
import { useChanges } from "./events.js";

/**
 * @template Row
 * @typedef {object} Windows
 * @property {number} total The length of the list; -1 before it is known.
 * @property {any} answer The newest answer, with what it says beside its rows.
 * @property {any} error
 * @property {(index: number) => Row | undefined} rowAt Undefined for a row that was not read yet.
 * @property {(first: number, last: number) => void} need Reads the rows from `first` to `last` (exclusive), unless they are there.
 * @property {() => void} reload
 */

/**
 * @template Row
 * @param {((first: number, limit: number) => string) | null} urlOf The question for a stretch; a new function is a new list.
 * @param {(answer: any) => {rows: Row[], total: number}} read
 * @param {{size: number, follows: (change: import("./events.js").Change) => boolean}} options
 * @returns {Windows<Row>}
 */
export function useWindows(urlOf, read, { size, follows }) {
  const [, draw] = useReducer(increased, 0);
  const list = useRef(emptyList());
  const viewed = useRef([0, 1]);

  const ask = useCallback(
    async (/** @type {number} */ index, /** @type {any} */ into) => {
      if (urlOf === null || into.asked.has(index)) return;
      into.asked.add(index);
      try {
        const answer = await get(urlOf(index * size, size), into.canceler.signal);
        const { rows, total } = read(answer);
        into.windows.set(index, rows);
        Object.assign(into, { total, answer, error: null });
        // A list whose first rows are there replaces the former one, which was seen until now.
        if (into === list.current.next) list.current = into;
      } catch (error) {
        if (into.canceler.signal.aborted) return;
        into.asked.delete(index);
        list.current.error = error;
      }
      draw(0);
    },
    [urlOf, read, size],
  );

  const restart = useCallback(() => {
    list.current.next?.canceler.abort();
    list.current.next = emptyList();
    const [first, last] = viewed.current;
    for (let index = Math.floor(first / size); index * size < Math.max(last, 1); index += 1) ask(index, list.current.next);
  }, [ask]);

  useEffect(() => {
    viewed.current = [0, 1];
    restart();
    return () => list.current.next?.canceler.abort();
  }, [restart]);
  useChanges(follows, restart);

  const need = useCallback(
    (/** @type {number} */ first, /** @type {number} */ last) => {
      viewed.current = [first, last];
      for (let index = Math.floor(first / size); index * size < last; index += 1) ask(index, list.current);
    },
    [ask],
  );
  const rowAt = (/** @type {number} */ index) => list.current.windows.get(Math.floor(index / size))?.[index % size];
  const { total, answer, error } = list.current;
  return { total, answer, error, rowAt, need, reload: restart };
}

/** @returns {any} */
const emptyList = () => ({ windows: new Map(), asked: new Set(), total: -1, answer: undefined, error: null, next: null, canceler: new AbortController() });

const increased = (/** @type {number} */ number) => number + 1;
