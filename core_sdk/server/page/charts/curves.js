/**
 * Curves as a chart draws them.
 *
 * A series comes from the server in buckets, each with its true minimum and maximum, so that every spike is drawn however
 * many points there are.
 */

import { smoothed } from "./smoothing.js";
/** @import { Metric } from "api" */

/**
 * A series as the server sends it: columns with a value for each bucket. Numbers that are not finite come as text, and
 * null stands where every value of a bucket is NaN.
 * @typedef {object} Series
 * @property {(number | null)[]} x The end of the bucket.
 * @property {(Metric | null)[]} minimum
 * @property {(Metric | null)[]} maximum
 * @property {(Metric | null)[]} mean
 * @property {number[]} [count] How many points the bucket has; without it, one.
 * @property {number[]} [numTrials] How many trials are in each point of a group's curve.
 */

/**
 * @typedef {object} Curve
 * @property {string} label
 * @property {string} colour The name of a colour of the style sheet.
 * @property {Series} series
 * @property {number} [origin] What of x is the chart's zero, for example when the trial has begun.
 * @property {boolean} [isFaint] Superseded by a later attempt.
 * @property {number[]} [dash] The lengths of the line's dashes and gaps, in pixels.
 * @property {boolean} [isBand] Whether the minima and maxima are the ends of a band about the means, as of a group.
 */

/**
 * A curve as arrays with a value for each bucket.
 * @typedef {object} Trace
 * @property {string} label
 * @property {string} colour
 * @property {boolean} isFaint
 * @property {Float64Array} places
 * @property {Float64Array} lows NaN where every value is NaN; infinities stay.
 * @property {Float64Array} highs
 * @property {Float64Array} means
 * @property {Float64Array | null} smooth The smoothed means; null without smoothing.
 * @property {number[]} dash
 * @property {boolean} isBand
 * @property {number[] | null} numTrials How many trials are in each point.
 */

/**
 * @param {Curve} curve
 * @param {number} smoothing
 * @returns {Trace}
 */
export function traceOf({ label, colour, series, origin = 0, isFaint = false, dash = [], isBand = false }, smoothing) {
  const isPlaced = series.x.map((x) => x !== null);
  const column = (/** @type {(Metric | null)[]} */ values) =>
    Float64Array.from(
      values.filter((_, index) => isPlaced[index]),
      asNumber,
    );
  // Where there is no band, as about a single trial, it has no width.
  const ends = (/** @type {(Metric | null)[]} */ values) => (isBand ? values.map((value, index) => value ?? series.mean[index]) : values);
  const lows = column(ends(series.minimum));
  const means = column(series.mean).map((mean, index) => (Number.isNaN(mean) ? lows[index] : mean));
  return {
    label,
    colour,
    isFaint,
    places: column(series.x).map((x) => x - origin),
    lows,
    highs: column(ends(series.maximum)),
    means,
    smooth:
      smoothing > 0
        ? Float64Array.from(
            smoothed(
              Array.from(means),
              smoothing,
              series.count?.filter((_, index) => isPlaced[index]),
            ),
            Number,
          )
        : null,
    dash,
    isBand,
    numTrials: series.numTrials ?? null,
  };
}

/** The columns of the line that is drawn: through the extremes of each bucket, or through the centres of a band. */
export const lineOf = (/** @type {Trace} */ { isBand, lows, highs, means }) => (isBand ? [means] : [lows, highs]);

/** The index of the bucket that is nearest to `x`; -1 without buckets. @param {Trace} trace @param {number} x */
export function nearest({ places }, x) {
  let low = 0;
  let high = places.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (places[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low > 0 && x - places[low - 1] < places[low] - x ? low - 1 : Math.min(low, places.length - 1);
}

/**
 * The range of x of all traces; null without any.
 * @param {Trace[]} traces
 * @returns {[number, number] | null}
 */
export function rangeOfX(traces) {
  const some = traces.filter(({ places }) => places.length > 0);
  if (some.length === 0) return null;
  const low = Math.min(...some.map(({ places }) => places[0]));
  const high = Math.max(...some.map(({ places }) => places[places.length - 1]));
  return low === high ? [low - 0.5, high + 0.5] : [low, high];
}

/**
 * The range of the values between two places, padded; null where there is none.
 * @param {Trace[]} traces
 * @param {[number, number]} rangeX
 * @param {{isLogarithmic: boolean, ignoresOutliers: boolean}} options
 * @returns {[number, number] | null}
 */
export function rangeOfY(traces, [from, to], { isLogarithmic, ignoresOutliers }) {
  /** @type {number[]} */
  const values = [];
  for (const { places, lows, highs } of traces) {
    for (let index = 0; index < places.length; index += 1) {
      if (places[index] < from || places[index] > to) continue;
      for (const value of [lows[index], highs[index]]) {
        if (Number.isFinite(value) && (!isLogarithmic || value > 0)) values.push(value);
      }
    }
  }
  if (values.length === 0) return null;
  const [low, high] = ignoresOutliers ? quantiles(values, 0.02, 0.98) : extremes(values);
  if (isLogarithmic) return low === high ? [low / 2, high * 2] : [low / 1.15, high * 1.15];
  const padding = low === high ? Math.abs(low) * 0.1 || 1 : (high - low) * 0.05;
  return [low - padding, high + padding];
}

/** The stretch, moved and cut so that it lies in the whole; null if it is the whole. */
export function within(/** @type {[number, number]} */ [from, to], /** @type {[number, number]} */ [first, last]) {
  const width = Math.min(to - from, last - first);
  const start = Math.min(Math.max(from, first), last - width);
  return width >= (last - first) * 0.999 ? null : /** @type {[number, number]} */ ([start, start + width]);
}

const asNumber = (/** @type {Metric | null} */ value) => (value === null ? NaN : Number(value));

/** @param {number[]} values @returns {[number, number]} */
function extremes(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

/** @param {number[]} values @param {number} low @param {number} high @returns {[number, number]} */
function quantiles(values, low, high) {
  const sorted = Float64Array.from(values).sort();
  const at = (/** @type {number} */ part) => sorted[Math.round(part * (sorted.length - 1))];
  return [at(low), at(high)];
}
