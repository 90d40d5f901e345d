/** A heat map of two hyperparameters: the mean of the metric in each cell. */

import { html } from "../../preact.js";
import { formatNumber } from "../../parts/text.js";
import { Figure, useRamp } from "./figure.js";
import { rampColour, readableOn } from "./scale.js";
/** @import { Drawn, Scale } from "./scale.js" */

const MARGIN = { left: 80, right: 12, top: 8, bottom: 34 };
const HEIGHT = 360;
const MOST_CELLS = 8;

/**
 * @param {object} props
 * @param {Scale} props.x
 * @param {Scale} props.y
 * @param {Scale} props.metric
 * @param {Drawn[]} props.trials
 * @param {number} props.width
 */
export function HeatMap({ x, y, metric, trials, width }) {
  const ramp = useRamp();
  const cells = cellsOf(x, y, metric, trials);
  const [numX, numY] = [x, y].map(numCells);
  const cellWidth = (width - MARGIN.left - MARGIN.right) / numX;
  const cellHeight = (HEIGHT - MARGIN.top - MARGIN.bottom) / numY;
  return html`
    <${Figure} title=${`Mean ${metric.title} by ${x.name} and ${y.name}`} description=${`Heat map: ${cells.map(({ column, row, mean, count }) => `cell ${column + 1}, ${row + 1}: ${formatNumber(mean)} of ${count}`).join("; ")}`} width=${width} height=${HEIGHT}>
      ${cells.map(({ column, row, mean, count }) => {
        const left = MARGIN.left + column * cellWidth;
        const ground = rampColour(metric.place(mean), ramp);
        const top = MARGIN.top + (numY - 1 - row) * cellHeight;
        return html`
          <rect x=${left + 1} y=${top + 1} width=${cellWidth - 2} height=${cellHeight - 2} rx="3" fill=${ground}><title>${formatNumber(mean)}, ${count} trials</title></rect>
          <text class="cell-value" fill=${readableOn(ground)} x=${left + cellWidth / 2} y=${top + cellHeight / 2 + 4} text-anchor="middle">${formatNumber(mean, 3)}</text>
        `;
      })}
      ${x.ticks.map(({ place, text }) => html`<text class="axis-tick" x=${MARGIN.left + centreOf(x, place, numX) * (width - MARGIN.left - MARGIN.right)} y=${HEIGHT - 16} text-anchor="middle">${text.slice(0, 12)}</text>`)}
      ${y.ticks.map(({ place, text }) => html`<text class="axis-tick" x=${MARGIN.left - 8} y=${HEIGHT - MARGIN.bottom - centreOf(y, place, numY) * (HEIGHT - MARGIN.top - MARGIN.bottom) + 4} text-anchor="end">${text.slice(0, 10)}</text>`)}
    <//>
  `;
}

/** The cells that have trials. */
export function cellsOf(/** @type {Scale} */ x, /** @type {Scale} */ y, /** @type {Scale} */ metric, /** @type {Pick<Drawn, "values">[]} */ trials) {
  /** @type {Map<string, {column: number, row: number, sum: number, count: number}>} */
  const cells = new Map();
  for (const { values } of trials) {
    const value = values[metric.name];
    const [column, row] = [cellOf(x, values[x.name]), cellOf(y, values[y.name])];
    if (typeof value !== "number" || column === null || row === null) continue;
    const cell = cells.get(`${column} ${row}`) ?? { column, row, sum: 0, count: 0 };
    cells.set(`${column} ${row}`, { ...cell, sum: cell.sum + value, count: cell.count + 1 });
  }
  return [...cells.values()].map(({ column, row, sum, count }) => ({ column, row, count, mean: sum / count }));
}

const numCells = (/** @type {Scale} */ { isNumeric, ticks }) => (isNumeric ? MOST_CELLS : Math.max(1, ticks.length));

function cellOf(/** @type {Scale} */ scale, /** @type {unknown} */ value) {
  const place = scale.place(value);
  if (Number.isNaN(place)) return null;
  const number = numCells(scale);
  return scale.isNumeric ? Math.min(number - 1, Math.floor(place * number)) : Math.round(place * (number - 1));
}

/** Returns where a tick stands: numbers at their place, other values at the centre of their cell. */
const centreOf = (/** @type {Scale} */ { isNumeric }, /** @type {number} */ place, /** @type {number} */ number) =>
  isNumeric ? place : (Math.round(place * (number - 1)) + 0.5) / number;
