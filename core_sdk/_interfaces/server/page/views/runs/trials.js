/** The trials of the table, as the server filters, searches and sorts them. */

import { useCallback, useEffect, useMemo } from "../../preact.js";
import { address, get } from "../../state/api.js";
import { useWindows } from "../../state/windows.js";
import { ALWAYS_READ } from "./columns.js";
/** @import { RunsAnswer } from "api" */
/** @import { Change } from "../../state/events.js" */
/** @import { Run } from "./grouping.js" */

const WINDOW = 200;
const MOST_AT_ONCE = 10_000;

/** @typedef {{experiment?: number, trials?: number[], where: string, search: string, sort: string, archived: boolean, columns: string[]}} Question */

/**
 * Trials as rows of the table, read as they come into view; all at once where they are to be grouped.
 * @param {Question | null} question Null asks nothing.
 * @param {boolean} needsAll
 */
export function useTrials(question, needsAll) {
  const text = JSON.stringify(question);
  const urlOf = useMemo(
    () => (question === null ? null : (/** @type {number} */ cursor, /** @type {number} */ limit) => urlOfPage(question, cursor, limit)),
    [text],
  );
  const size = needsAll ? MOST_AT_ONCE : WINDOW;
  const trials = useWindows(urlOf, readPage, { size, about: `${question?.experiment ?? ""} ${question?.trials ?? ""}`, follows: aboutTrials });
  useEffect(() => {
    if (needsAll) trials.need(0, Math.max(1, trials.total));
  }, [needsAll, trials.total, trials.need]);
  const readAll = useCallback(() => (question === null ? Promise.resolve([]) : allTrials(question)), [text]);
  return { ...trials, readAll };
}

/** All trials that answer a question, however many. @param {Question} question */
async function allTrials(question) {
  /** @type {Run[]} */
  const rows = [];
  for (let cursor = 0; ; cursor += MOST_AT_ONCE) {
    const page = readPage(await get(urlOfPage(question, cursor, MOST_AT_ONCE)));
    rows.push(...page.rows);
    if (rows.length >= page.total || page.rows.length === 0) return rows;
  }
}

function urlOfPage(/** @type {Question} */ { columns, archived, ...rest }, /** @type {number} */ cursor, /** @type {number} */ limit) {
  const names = [...new Set([...ALWAYS_READ, ...columns])];
  return address(["runs"], { ...rest, archived: archived || null, columns: names, cursor, limit });
}

const readPage = (/** @type {RunsAnswer} */ answer) => ({ rows: runsOf(answer), total: answer.num_found });

/** The trials of an answer; each has the fields that were asked for. @param {RunsAnswer} answer @returns {Run[]} */
export const runsOf = ({ columns, rows, ids }) =>
  rows.map((cells, index) => ({
    key: String(ids[index]),
    values: /** @type {import("./grouping.js").RunValues} */ (Object.fromEntries(cells.map((cell, column) => [columns[column], cell]))),
  }));

const aboutTrials = (/** @type {Change} */ { trials }) => trials.length > 0;
