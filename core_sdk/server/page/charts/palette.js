/** The colours of curves: names of the style sheet, which has them for both themes. */

const NUM_COLOURS = 10;

/** The colour of the curve with this index; they repeat. */
export const seriesColour = (/** @type {number} */ index) => `--series-${(index % NUM_COLOURS) + 1}`;
