/** Curves of the rates of a classifier, which are kept as tables: precision and recall, or true and false positives. */

import { html, useMemo } from "../../preact.js";
import { dashOf, LineSample, seriesColour } from "../../charts/palette.js";
import { Figure } from "../../charts/search/figure.js";
import { Remark } from "../../parts/states.js";
import { firstOf } from "../../parts/text.js";
import { styleColour } from "../../state/theme.js";
/** @import { Cell } from "./table.js" */

const [SIZE, LEFT, TOP, BOTTOM] = [320, 44, 8, 38];
const MOST_CURVES = 20;
const TICKS = [0, 0.25, 0.5, 0.75, 1];

/** The columns across and up, with what they are called. @type {[string, string, string, string][]} */
const KINDS = [
  ["recall", "precision", "recall", "precision"],
  ["fpr", "tpr", "false positive rate", "true positive rate"],
];

/** @typedef {{name: string, points: [number, number][]}} Rates The curve of a class. */

/**
 * The curves of a table, by its class; null if its columns are no rates. Pure.
 * @param {string[]} columns
 * @param {Cell[][]} rows
 * @returns {{x: string, y: string, curves: Rates[]} | null}
 */
export function ratesOf(columns, rows) {
  const kind = KINDS.find(([x, y]) => columns.includes(x) && columns.includes(y));
  if (kind === undefined) return null;
  const [across, up, named] = [kind[0], kind[1], "class"].map((name) => columns.indexOf(name));
  /** @type {Map<string, [number, number][]>} */
  const curves = new Map();
  for (const row of rows) {
    const [x, y] = [row[across], row[up]];
    if (!isRate(x) || !isRate(y)) continue;
    const name = named < 0 ? "" : String(row[named]);
    const points = curves.get(name);
    if (points) points.push([x, y]);
    else curves.set(name, [[x, y]]);
  }
  return curves.size === 0 ? null : { x: kind[2], y: kind[3], curves: [...curves].map(([name, points]) => ({ name, points })) };
}

/** @param {Cell} cell @returns {cell is number} */
const isRate = (cell) => typeof cell === "number" && cell >= 0 && cell <= 1;

/** @param {{columns: string[], rows: Cell[][], name: string}} props Nothing, if the table has no rates. */
export function RateCurves({ columns, rows, name }) {
  const found = useMemo(() => ratesOf(columns, rows), [columns, rows]);
  if (found === null) return null;
  const { x, y, curves } = found;
  const shown = curves.slice(0, MOST_CURVES);
  const height = SIZE + TOP + BOTTOM;
  const left = (/** @type {number} */ rate) => LEFT + rate * SIZE;
  const top = (/** @type {number} */ rate) => TOP + (1 - rate) * SIZE;
  const legend = html`
    <ul class="legend">${shown.map(({ name: of }, index) => of && html`<li><${LineSample} colour=${seriesColour(index)} dash=${dashOf(index)} />${of}</li>`)}</ul>
    ${curves.length > shown.length && html`<${Remark}>The curves of the first ${firstOf(shown.length, curves.length)} classes are drawn.<//>`}
  `;
  return html`
    <${Figure} title=${name} description=${`${y} against ${x}, ${shown.map(({ name: of }) => of).join(", ")}`} width=${LEFT + SIZE + 12} height=${height} after=${legend}>
      ${TICKS.map(
        (tick) => html`
          <path class="grid-line" d=${`M${LEFT} ${top(tick)}h${SIZE}M${left(tick)} ${TOP}v${SIZE}`} />
          <text class="axis-tick" x=${LEFT - 6} y=${top(tick) + 4} text-anchor="end">${tick}</text>
          <text class="axis-tick" x=${left(tick)} y=${TOP + SIZE + 14} text-anchor="middle">${tick}</text>
        `,
      )}
      ${shown.map(({ name: of, points }, index) => {
        const line = points.map(([across, up]) => `${left(across).toFixed(1)} ${top(up).toFixed(1)}`).join("L");
        return html`<path class="rate-curve" d=${`M${line}`} fill="none" stroke=${styleColour(seriesColour(index))} stroke-width="1.5" stroke-dasharray=${dashOf(index).join(" ")}>${of && html`<title>${of}</title>`}</path>`;
      })}
      <text class="axis-name" x=${LEFT + SIZE / 2} y=${height - 6} text-anchor="middle">${x}</text>
      <text class="axis-name" x="12" y=${TOP + SIZE / 2} text-anchor="middle" transform=${`rotate(-90 12 ${TOP + SIZE / 2})`}>${y}</text>
    <//>
  `;
}
