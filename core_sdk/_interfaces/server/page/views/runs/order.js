/** The order of rows that the page has in full: a pure function. */

import { own } from "../../parts/own.js";

const collator = new Intl.Collator("en", { numeric: true });

/**
 * By the value of a column, with "-" before its name descending; rows without a value come last.
 * @template {{values: object}} Row
 * @param {Row[]} rows
 * @param {string} sort
 * @returns {Row[]}
 */
export function inOrder(rows, sort) {
  const name = sort.replace(/^-/, "");
  const sign = sort.startsWith("-") ? -1 : 1;
  const valueOf = (/** @type {Row} */ row) => own(/** @type {Record<string, unknown>} */ (row.values), name);
  const has = (/** @type {Row} */ row) => valueOf(row) != null && valueOf(row) !== "";
  const ordered = rows.filter(has).sort((one, other) => sign * compare(valueOf(one), valueOf(other)));
  return [...ordered, ...rows.filter((row) => !has(row))];
}

function compare(/** @type {unknown} */ one, /** @type {unknown} */ other) {
  return typeof one === "number" && typeof other === "number" ? one - other : collator.compare(String(one), String(other));
}
