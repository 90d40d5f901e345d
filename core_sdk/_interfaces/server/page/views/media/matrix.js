/** A confusion matrix: a row for each true class, a column for each prediction. */

import { html, useMemo } from "../../preact.js";
import { Figure, useRamp } from "../../charts/search/figure.js";
import { rampColour, readableOn } from "../../charts/search/scale.js";
import { formatNumber } from "../../parts/text.js";

const [WIDTH, LEFT, TOP, BOTTOM] = [420, 90, 8, 46];
const MOST_WITH_NUMBERS = 14;
const MOST_LABELS = 24;

/** @param {{text: string, name: string}} props */
export function Matrix({ text, name }) {
  const { labels, matrix } = useMemo(() => /** @type {{labels: string[], matrix: number[][]}} */ (JSON.parse(text)), [text]);
  const ramp = useRamp();
  const side = (WIDTH - LEFT - 8) / labels.length;
  const height = TOP + side * labels.length + BOTTOM;
  const every = Math.ceil(labels.length / MOST_LABELS);
  const right = matrix.reduce((sum, row, index) => sum + row[index], 0);
  const all = matrix.flat().reduce((sum, count) => sum + count, 0);
  const centre = (/** @type {number} */ index) => (index + 0.5) * side;
  return html`
    <${Figure} title=${name} description=${`Confusion matrix of ${labels.length} classes: ${formatNumber(right)} of ${formatNumber(all)} are right`} width=${WIDTH} height=${height}>
      ${matrix.map((row, index) => {
        const total = row.reduce((sum, count) => sum + count, 0);
        return row.map((count, column) => {
          const ground = rampColour(total > 0 ? count / total : 0, ramp);
          return html`
            <rect x=${LEFT + column * side} y=${TOP + index * side} width=${Math.max(0.5, side - 1)} height=${Math.max(0.5, side - 1)} fill=${ground}><title>${labels[index]} as ${labels[column]}: ${formatNumber(count)}, ${formatNumber(total > 0 ? (100 * count) / total : 0, 3)} %</title></rect>
            ${labels.length <= MOST_WITH_NUMBERS && html`<text class="cell-value" fill=${readableOn(ground)} x=${LEFT + centre(column)} y=${TOP + centre(index) + 4} text-anchor="middle">${formatNumber(count, 3)}</text>`}
          `;
        });
      })}
      ${labels.map((label, index) => index % every === 0 && html`<text class="axis-tick" x=${LEFT - 6} y=${TOP + centre(index) + 4} text-anchor="end">${label.slice(0, 12)}</text><text class="axis-tick" x=${LEFT + centre(index)} y=${TOP + side * labels.length + 14} text-anchor="middle">${label.slice(0, Math.max(2, Math.floor(side / 6)))}</text>`)}
      <text class="axis-name" x=${LEFT + (WIDTH - LEFT) / 2} y=${height - 8} text-anchor="middle">predicted</text>
      <text class="axis-name" x="12" y=${TOP + (side * labels.length) / 2} text-anchor="middle" transform=${`rotate(-90 12 ${TOP + (side * labels.length) / 2})`}>true</text>
    <//>
  `;
}
