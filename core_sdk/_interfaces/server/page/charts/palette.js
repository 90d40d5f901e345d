/** The colours and dashes of curves. The colours are names of the style sheet, which has them for both themes. */

import { html } from "../preact.js";
import { styleColour } from "../state/theme.js";

export const NUM_COLOURS = 10;

/** The lengths of dashes and gaps in each kind of line, in pixels. @type {number[][]} */
const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3]];

/** The colour of the curve with this index; they repeat. */
export const seriesColour = (/** @type {number} */ index) => `--series-${(index % NUM_COLOURS) + 1}`;

/** The dash of the group with this index. No two of the first forty groups have both the same colour and the same dash. */
export const dashOf = (/** @type {number} */ index) => DASHES[(index + Math.floor(index / (2 * NUM_COLOURS))) % DASHES.length];

/** The number of kinds of dashes. */
export const NUM_DASHES = DASHES.length;

/** The dash of the n-th curve of one colour, counted from 0. */
export const dashWithin = (/** @type {number} */ index) => DASHES[index % DASHES.length];

/** A piece of a line, for a legend. @param {{colour: string, dash: number[]}} props */
export const LineSample = ({ colour, dash }) => html`
  <svg class="line-sample" width="24" height="6" aria-hidden="true">
    <path d="M0 3H24" stroke-dasharray=${dash.join(" ")} style=${{ stroke: styleColour(colour) }} />
  </svg>
`;
