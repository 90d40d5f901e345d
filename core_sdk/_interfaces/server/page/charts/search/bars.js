/** Bars with their errors: a row for each, which says its numbers too. */

import { html } from "../../preact.js";
import { csvText } from "../../parts/saving.js";
import { formatNumber } from "../../parts/text.js";
import { styleColour } from "../../state/theme.js";
import { roundTicks } from "../ticks.js";
import { Figure } from "./figure.js";

const ROW = 28;
/** The width of a tick and its number, roughly. */
const TICK = 44;
const MARGIN = { right: 170, top: 4, bottom: 24 };

/** @typedef {{label: string, colour: string, centre: number, low: number, high: number, count: number}} Bar */

/** @param {{title: string, bars: Bar[], width: number}} props */
export function Bars({ title, bars, width }) {
  const left = Math.min(0.45 * width, 16 + 7 * Math.max(...bars.map(({ label }) => label.length)));
  const [low, high] = [Math.min(0, ...bars.map((bar) => bar.low)), Math.max(0, ...bars.map((bar) => bar.high))];
  const room = Math.max(40, width - left - MARGIN.right);
  const x = (/** @type {number} */ value) => left + ((value - low) / (high - low || 1)) * room;
  const height = MARGIN.top + ROW * bars.length + MARGIN.bottom;
  const most = Math.floor(left / 6.2);
  const ticks = roundTicks(low, high, false);
  const every = Math.ceil((ticks.length * TICK) / room);
  const csv = () =>
    csvText([["group", "centre", "low", "high", "num_trials"], ...bars.map((bar) => [bar.label, bar.centre, bar.low, bar.high, bar.count])]);
  return html`
    <${Figure} title=${title} description=${`${title}: ${bars.map((bar) => `${bar.label} ${textOf(bar)}`).join("; ")}`} width=${width} height=${height} csv=${csv}>
      ${ticks.filter((_, index) => index % every === 0).map((tick) => html`<path class="grid-line" d=${`M${x(tick)} ${MARGIN.top}V${height - MARGIN.bottom}`} /><text class="axis-tick" x=${x(tick)} y=${height - 8} text-anchor="middle">${formatNumber(tick)}</text>`)}
      ${bars.map((bar, index) => {
        const middle = MARGIN.top + ROW * (index + 0.5);
        return html`
          <g key=${bar.label}>
            <text class="axis-tick" x=${left - 8} y=${middle + 4} text-anchor="end">${bar.label.length > most ? `${bar.label.slice(0, most - 1)}…` : bar.label}<title>${bar.label}</title></text>
            <rect x=${Math.min(x(0), x(bar.centre))} y=${middle - 8} width=${Math.abs(x(bar.centre) - x(0))} height="16" rx="2" style=${{ fill: styleColour(bar.colour), fillOpacity: 0.75 }} />
            ${bar.low < bar.high && html`<path class="error-bar" d=${`M${x(bar.low)} ${middle}H${x(bar.high)}M${x(bar.low)} ${middle - 5}v10M${x(bar.high)} ${middle - 5}v10`} />`}
            <text class="axis-tick" x=${left + room + 10} y=${middle + 4}>${textOf(bar)}</text>
          </g>
        `;
      })}
    <//>
  `;
}

/** The ends are told as they are: the band of a group may not be the same on both sides. */
const textOf = (/** @type {Bar} */ { centre, low, high, count }) =>
  `${formatNumber(centre)}${low < high ? ` (${formatNumber(low, 3)} … ${formatNumber(high, 3)})` : ""}, n = ${count}`;
