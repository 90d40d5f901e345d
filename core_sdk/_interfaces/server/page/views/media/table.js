/** A table that sorts and filters. */

import { html, useMemo, useState } from "../../preact.js";
import { withText } from "../../parts/field.js";
import { counted, formatValue } from "../../parts/text.js";
import { RateCurves } from "./rates.js";

const MAX_ROWS = 300;

/** @typedef {string | number | boolean | null | {$float: string}} Cell */

const textOf = (/** @type {Cell} */ cell) => (cell !== null && typeof cell === "object" ? cell.$float : formatValue(cell));
const numberOf = (/** @type {Cell} */ cell) => (cell !== null && typeof cell === "object" ? Number(cell.$float) : cell);

/**
 * The rows that have a text in any cell, in the order of a column. Numbers come before texts, and what is missing last. Pure.
 * @param {Cell[][]} rows
 * @param {string} search
 * @param {number | null} column
 * @param {boolean} isDescending
 * @returns {Cell[][]}
 */
export function rowsOf(rows, search, column, isDescending) {
  const wanted = search.toLowerCase();
  const found = rows.filter((row) => row.some((cell) => textOf(cell).toLowerCase().includes(wanted)));
  if (column === null) return found;
  const sign = isDescending ? -1 : 1;
  return found.sort(([...one], [...other]) => compared(numberOf(one[column]), numberOf(other[column]), sign));
}

/** @param {string | number | boolean | null} one @param {string | number | boolean | null} other @param {number} sign */
function compared(one, other, sign) {
  const isMissing = (/** @type {unknown} */ value) => value === null || Number.isNaN(value);
  if (isMissing(one) || isMissing(other)) return Number(isMissing(one)) - Number(isMissing(other));
  if (typeof one === "string" && typeof other === "string") return sign * one.localeCompare(other);
  if (typeof one === "string" || typeof other === "string") return sign * (typeof one === "string" ? 1 : -1);
  return sign * (Number(one) - Number(other));
}

/** @param {{text: string, name: string}} props */
export function Table({ text, name }) {
  const { columns, rows } = useMemo(() => /** @type {{columns: string[], rows: Cell[][]}} */ (JSON.parse(text)), [text]);
  const [search, setSearch] = useState("");
  const [order, setOrder] = useState(/** @type {{column: number | null, isDescending: boolean}} */ ({ column: null, isDescending: false }));
  const found = useMemo(() => rowsOf(rows, search, order.column, order.isDescending), [rows, search, order]);
  const sort = (/** @type {number} */ column) => setOrder({ column, isDescending: order.column === column && !order.isDescending });
  const direction = (/** @type {number} */ column) => (order.column !== column ? "none" : order.isDescending ? "descending" : "ascending");
  return html`
    <${RateCurves} columns=${columns} rows=${rows} name=${name} />
    <div class="row">
      <input type="search" class="search" placeholder="Filter" aria-label=${`Filter ${name}`} value=${search} onInput=${withText(setSearch)} />
      <span class="soft">${found.length === rows.length ? counted(rows.length, "row") : `${found.length} of ${counted(rows.length, "row")}`}</span>
    </div>
    <div class="scroll-x media-table" tabindex="0" role="region" aria-label=${`Rows of ${name}`}>
      <table class="plain-table">
        <thead>
          <tr>${columns.map((title, index) => html`<th aria-sort=${direction(index)}><button class="grid-sort" onClick=${() => sort(index)}><span>${title}</span><i>${{ none: "", ascending: "↑", descending: "↓" }[direction(index)]}</i></button></th>`)}</tr>
        </thead>
        <tbody>${found.slice(0, MAX_ROWS).map((row) => html`<tr>${row.map((cell) => html`<td>${textOf(cell)}</td>`)}</tr>`)}</tbody>
      </table>
    </div>
    ${found.length > MAX_ROWS && html`<p class="soft">The first ${MAX_ROWS} rows are shown. The filter finds others.</p>`}
  `;
}
