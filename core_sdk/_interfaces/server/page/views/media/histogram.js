/** A histogram: the bars of one step, and how often each value was reported over all steps. */

import { html, useEffect, useMemo, useRef } from "../../preact.js";
import { useRamp } from "../../charts/search/figure.js";
import { rampColour } from "../../charts/search/scale.js";
import { counted, formatNumber } from "../../parts/text.js";
import { useContents } from "../../state/contents.js";
import { thinned } from "./choosing.js";
/** @import { MediaItem } from "api" */

const [WIDTH, HEIGHT] = [400, 110];
const NUM_ROWS = 64;
const MAX_COLUMNS = 200;

/** @typedef {{counts: number[], edges: number[], num_not_finite?: number}} Counted */

/**
 * How densely the values lie in equally high rows from the lowest to the highest edge of all. Pure.
 * @param {Counted[]} histograms
 * @param {number} numRows
 * @returns {number[][]} A column for each histogram, from 0 to 1.
 */
export function densitiesOf(histograms, numRows) {
  const low = Math.min(...histograms.map(({ edges }) => edges[0]));
  const high = Math.max(...histograms.map(({ edges }) => edges[edges.length - 1]));
  const height = (high - low) / numRows;
  const columns = histograms.map(({ counts, edges }) => {
    const column = new Array(numRows).fill(0);
    counts.forEach((count, index) => {
      const density = count / (edges[index + 1] - edges[index]);
      const first = Math.floor((edges[index] - low) / height);
      const last = Math.min(numRows - 1, Math.floor((edges[index + 1] - low) / height));
      for (let row = first; row <= last; row += 1) {
        const overlap = Math.min(edges[index + 1], low + (row + 1) * height) - Math.max(edges[index], low + row * height);
        column[row] += density * Math.max(0, overlap);
      }
    });
    return column;
  });
  const most = Math.max(...columns.flat(), Number.MIN_VALUE);
  return columns.map((column) => column.map((value) => value / most));
}

/** @param {{trialId: number, items: MediaItem[], item: MediaItem, text: string}} props */
export function Histogram({ trialId, items, item, text }) {
  const shown = useMemo(() => /** @type {Counted} */ (JSON.parse(text)), [text]);
  const { counts, edges } = shown;
  const most = Math.max(...counts, 1);
  const [low, high] = [edges[0], edges[edges.length - 1]];
  const x = (/** @type {number} */ value) => ((value - low) / (high - low)) * WIDTH;
  const total = counts.reduce((sum, count) => sum + count, 0);
  return html`
    <svg class="drawing" role="img" aria-label=${`Histogram of ${counted(total, "value")} from ${formatNumber(low)} to ${formatNumber(high)}`} viewBox=${`0 0 ${WIDTH} ${HEIGHT + 18}`}>
      ${counts.map((count, index) => html`<rect class="histogram-bar" x=${x(edges[index])} y=${HEIGHT * (1 - count / most)} width=${Math.max(0.5, x(edges[index + 1]) - x(edges[index]) - 0.5)} height=${(HEIGHT * count) / most}><title>${formatNumber(edges[index])} to ${formatNumber(edges[index + 1])}: ${formatNumber(count)}</title></rect>`)}
      <line class="axis-line" x1="0" x2=${WIDTH} y1=${HEIGHT} y2=${HEIGHT} />
      <text class="axis-tick" x="0" y=${HEIGHT + 14}>${formatNumber(low)}</text>
      <text class="axis-tick" x=${WIDTH} y=${HEIGHT + 14} text-anchor="end">${formatNumber(high)}</text>
    </svg>
    ${(shown.num_not_finite ?? 0) > 0 && html`<p class="soft">${counted(shown.num_not_finite ?? 0, "value")} not finite</p>`}
    ${items.length > 1 && html`<${OverTime} trialId=${trialId} items=${items} item=${item} />`}
  `;
}

/** @param {{trialId: number, items: MediaItem[], item: MediaItem}} props */
function OverTime({ trialId, items, item }) {
  const shown = useMemo(() => thinned(items, MAX_COLUMNS), [items]);
  const contents = useContents(trialId, shown);
  const numArrived = contents.filter((content) => content?.text != null).length;
  const columns = useMemo(() => {
    const arrived = shown.flatMap((one, index) => {
      const text = contents[index]?.text;
      return text == null ? [] : [{ step: one.steps_completed, histogram: /** @type {Counted} */ (JSON.parse(text)) }];
    });
    return {
      steps: arrived.map(({ step }) => step),
      densities: densitiesOf(
        arrived.map(({ histogram }) => histogram),
        NUM_ROWS,
      ),
    };
  }, [shown, numArrived]);
  const ramp = useRamp();
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const current = columns.steps.findLastIndex((step) => step <= item.steps_completed);
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context) return;
    context.clearRect(0, 0, columns.densities.length, NUM_ROWS);
    columns.densities.forEach((column, index) =>
      column.forEach((density, row) => {
        if (density === 0) return;
        context.fillStyle = rampColour(Math.sqrt(density), ramp);
        context.fillRect(index, NUM_ROWS - 1 - row, 1, 1);
      }),
    );
  }, [columns, ramp]);
  const place = columns.steps.length > 1 ? ((current + 0.5) / columns.steps.length) * 100 : 50;
  return html`
    <div class="histogram-map">
      <canvas ref=${canvas} role="img" aria-label=${`The histograms of ${counted(columns.steps.length, "step")} beside each other`} width=${Math.max(1, columns.steps.length)} height=${NUM_ROWS}></canvas>
      <i style=${{ left: `${place}%` }}></i>
    </div>
    <div class="row soft"><span>step ${shown[0].steps_completed}</span><span class="spread"></span><span>step ${shown[shown.length - 1].steps_completed}</span></div>
  `;
}
