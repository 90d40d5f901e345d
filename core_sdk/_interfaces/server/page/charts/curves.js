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
 * @property {Metric | null} [last] The value that was reported last, which may be in a bucket with others.
 */

/**
 * @typedef {object} Curve
 * @property {string} label
 * @property {string} [key] What the curve is of, for example a trial; curves of one key stand out together. By default its label.
 * @property {string} colour The name of a colour of the style sheet, or a colour of CSS.
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
 * @property {string} key
 * @property {string} colour
 * @property {boolean} isFaint
 * @property {Float64Array} places
 * @property {boolean} isAscending Whether the places are; a metric as axis may go back.
 * @property {Float64Array} lows NaN where every value is NaN; infinities stay.
 * @property {Float64Array} highs
 * @property {Float64Array} means
 * @property {Float64Array | null} smooth The smoothed means; null without smoothing.
 * @property {number | null} last The value that was reported last, if it is known.
 * @property {boolean} hasArea Whether any point has a minimum below its maximum.
 * @property {number[]} dash
 * @property {boolean} isBand
 * @property {number[] | null} numTrials How many trials are in each point.
 */

/** Whether curves show what was reported, or the smallest or the largest value so far. @typedef {"" | "min" | "max"} SoFar */

/**
 * @param {Curve} curve
 * @param {number} smoothing
 * @param {SoFar} [soFar] Groups have no best value so far: the best of a mean is not the mean of the best.
 * @returns {Trace}
 */
export function traceOf({ label, key = label, colour, series, origin = 0, isFaint = false, dash = [], isBand = false }, smoothing, soFar = "") {
  const isPlaced = series.x.map((x) => x !== null);
  const column = (/** @type {(Metric | null)[]} */ values) =>
    Float64Array.from(
      values.filter((_, index) => isPlaced[index]),
      asNumber,
    );
  // Where there is no band, as about a single trial, it has no width.
  const ends = (/** @type {(Metric | null)[]} */ values) => (isBand ? values.map((value, index) => value ?? series.mean[index]) : values);
  const isRunning = soFar !== "" && !isBand;
  const running = isRunning ? bestSoFar(column(soFar === "min" ? series.minimum : series.maximum), soFar) : null;
  const lows = running ?? column(ends(series.minimum));
  const highs = running ?? column(ends(series.maximum));
  const places = column(series.x).map((x) => x - origin);
  const means = running ?? column(series.mean).map((mean, index) => (Number.isNaN(mean) ? lows[index] : mean));
  return {
    label,
    key,
    colour,
    isFaint,
    places,
    isAscending: places.every((place, index) => index === 0 || place >= places[index - 1]),
    lows,
    highs,
    means,
    last: isRunning || series.last == null ? null : asNumber(series.last),
    hasArea: lows.some((low, index) => low < highs[index]),
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

/** The lower and the upper end of y, where they are set. @typedef {[number | null, number | null]} Limits */

function bestSoFar(/** @type {Float64Array} */ values, /** @type {SoFar} */ soFar) {
  let best = NaN;
  return values.map(
    (value) => (best = Number.isNaN(best) ? value : Number.isNaN(value) ? best : soFar === "min" ? Math.min(best, value) : Math.max(best, value)),
  );
}

/**
 * The stretches of a line, each as the coordinates of its points in turn. What has no place interrupts the line, such as NaN.
 * @param {Pick<Trace, "places">} trace
 * @param {Float64Array} values
 * @param {(x: number) => number} left
 * @param {(y: number) => number} top
 */
export function stretchesOf({ places }, values, left, top) {
  /** @type {number[][]} */
  const stretches = [];
  let isInterrupted = true;
  for (let index = 0; index < places.length; index += 1) {
    const [x, y] = [left(places[index]), top(values[index])];
    const hasPlace = Number.isFinite(x) && Number.isFinite(y);
    if (hasPlace && isInterrupted) stretches.push([]);
    if (hasPlace) stretches[stretches.length - 1].push(x, y);
    isInterrupted = !hasPlace;
  }
  return stretches;
}

/**
 * What lies between the lower and the upper ends of a trace, as the corners of areas in turn: the extremes of buckets, or
 * the band of a group.
 * @param {Pick<Trace, "places" | "lows" | "highs">} trace
 * @param {(x: number) => number} left
 * @param {(y: number) => number} top
 * @param {number} bottom Where the area ends if its lower end has no place, as on a logarithmic axis.
 */
export function areasOf({ places, lows, highs }, left, top, bottom) {
  /** @type {{above: number[], below: number[]}[]} */
  const areas = [];
  let isInterrupted = true;
  for (let index = 0; index < places.length; index += 1) {
    const [x, high] = [left(places[index]), top(highs[index])];
    const low = Number.isFinite(lows[index]) && !Number.isFinite(top(lows[index])) ? bottom : top(lows[index]);
    const hasPlace = Number.isFinite(x) && Number.isFinite(low) && Number.isFinite(high);
    if (hasPlace && isInterrupted) areas.push({ above: [], below: [] });
    if (hasPlace) {
      areas[areas.length - 1].above.push(x, high);
      areas[areas.length - 1].below.unshift(x, low);
    }
    isInterrupted = !hasPlace;
  }
  return areas.map(({ above, below }) => [...above, ...below]);
}

/** The place nearest to `x` at which a curve that counts has a point; null without any. @param {Trace[]} traces @param {number} x @returns {number | null} */
export function snapped(traces, x) {
  const places = traces.filter(({ isFaint, places: of }) => !isFaint && of.length > 0).map((trace) => trace.places[nearest(trace, x)]);
  return places.reduce(
    (best, place) => (best === null || Math.abs(place - x) < Math.abs(best - x) ? place : best),
    /** @type {number | null} */ (null),
  );
}

/**
 * Why nothing is drawn although something was reported; empty if something is drawn, or nothing was reported.
 * @param {Trace[]} traces
 * @param {[number, number]} visible
 * @param {Limits} limits
 * @param {{isLogX: boolean, isLogarithmic: boolean, ignoresOutliers: boolean}} options
 */
export function whyNothing(traces, [from, to], [least, most], { isLogX, isLogarithmic, ignoresOutliers }) {
  const isLimited = least !== null || most !== null;
  if (!isLimited && !isLogX && rangeOfY(traces, [from, to], { isLogarithmic, ignoresOutliers }) !== null) return "";
  let points = traces.flatMap(({ places, lows, highs }) => Array.from(places, (x, index) => ({ x, low: lows[index], high: highs[index] })));
  /** @type {[(point: {x: number, low: number, high: number}) => boolean, string][]} */
  const reasons = [
    [({ x }) => !isLogX || x > 0, "A logarithmic axis begins above 0, where nothing was reported."],
    [({ x }) => x >= from && x <= to, "Nothing was reported in this stretch."],
    [({ low, high }) => Number.isFinite(low) || Number.isFinite(high), "All values are NaN or infinite."],
    [({ low, high }) => isDrawable(low) || isDrawable(high), "All values are too large to be drawn."],
    [({ high }) => !isLogarithmic || high > 0, "A logarithmic axis has no place for these values: none is above 0."],
    [
      ({ low, high }) => high >= (least ?? -Infinity) && low <= (most ?? Infinity),
      "All values lie outside the ends that the vertical axis was given.",
    ],
  ];
  if (points.length === 0) return "";
  for (const [holds, reason] of reasons) {
    points = points.filter(holds);
    if (points.length === 0) return reason;
  }
  return "";
}

/** The index of the bucket that is nearest to `x`; -1 without buckets. @param {Trace} trace @param {number} x */
export function nearest({ places, isAscending }, x) {
  if (!isAscending) return places.reduce((best, place, index) => (Math.abs(place - x) < Math.abs(places[best] - x) ? index : best), 0);
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
 * The range of x of all traces, on a logarithmic axis of those that have a place there; null without any.
 * @param {Trace[]} traces
 * @param {boolean} [isLogarithmic]
 * @returns {[number, number] | null}
 */
export function rangeOfX(traces, isLogarithmic = false) {
  let low = Infinity;
  let high = -Infinity;
  for (const { places } of traces) {
    for (const place of places) {
      if (isLogarithmic && place <= 0) continue;
      if (place < low) low = place;
      if (place > high) high = place;
    }
  }
  if (low > high) return null;
  if (low < high) return [low, high];
  return isLogarithmic ? [low / 2, high * 2] : [low - 0.5, high + 0.5];
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
        if (isDrawable(value) && (!isLogarithmic || value > 0)) values.push(value);
      }
    }
  }
  if (values.length === 0) return null;
  const [low, high] = ignoresOutliers ? quantiles(values, 0.02, 0.98) : extremes(values);
  if (isLogarithmic) return low === high ? [low / 2, high * 2] : [low / 1.15, high * 1.15];
  const padding = low === high ? Math.abs(low) * 0.1 || 1 : (high - low) * 0.05;
  return [low - padding, high + padding];
}

/**
 * The stretch after a move that is the same at each place of the axis, also of a logarithmic one; null if it is the whole.
 * @param {[number, number]} stretch
 * @param {[number, number]} whole
 * @param {boolean} isLogarithmic
 * @param {(from: number, to: number) => [number, number]} move
 * @returns {[number, number] | null}
 */
export function moved(stretch, whole, isLogarithmic, move) {
  if (!isLogarithmic) return within(move(...stretch), whole);
  const [[from, to], [first, last]] = [stretch.map(Math.log), whole.map(Math.log)];
  const next = within(move(from, to), [first, last]);
  return next && [Math.exp(next[0]), Math.exp(next[1])];
}

/**
 * The range of y with the limits that are set in the place of its ends.
 * @param {[number, number]} range
 * @param {Limits} limits
 * @param {boolean} isLogarithmic
 * @returns {[number, number]}
 */
export function limited([low, high], [least, most], isLogarithmic) {
  const from = least === null || (isLogarithmic && least <= 0) ? low : least;
  const to = most === null || (isLogarithmic && most <= 0) ? high : most;
  return from < to ? [from, to] : [low, high];
}

/** Returns where a value is in a range, from 0 to 1; not finite where it has no logarithm. @param {number} value @param {[number, number]} range @param {boolean} isLogarithmic */
export function partOf(value, [low, high], isLogarithmic) {
  const bend = isLogarithmic ? Math.log10 : Number;
  return (bend(value) - bend(low)) / (bend(high) - bend(low));
}

/** The trace that is drawn nearest to a point, if it is at most `reach` pixels away. */
export function traceAt(
  /** @type {Trace[]} */ traces,
  /** @type {{x: number, left: number, top: number}} */ { x, left, top },
  /** @type {(trace: Trace, index: number) => [number, number]} */ positionOf,
  /** @type {number} */ reach,
) {
  /** @type {Trace | null} */
  let found = null;
  let least = reach;
  for (const trace of traces) {
    if (trace.places.length === 0) continue;
    const middle = nearest(trace, x);
    const first = trace.isAscending ? Math.max(0, middle - 1) : 0;
    const last = trace.isAscending ? Math.min(trace.places.length - 1, middle + 1) : trace.places.length - 1;
    for (let index = first; index <= last; index += 1) {
      const distance = distanceToLine([left, top], positionOf(trace, Math.max(first, index - 1)), positionOf(trace, index));
      if (distance < least) [least, found] = [distance, trace];
    }
  }
  return found;
}

/** @typedef {[number, number]} Point */

function distanceToLine(/** @type {Point} */ [x, y], /** @type {Point} */ [fromX, fromY], /** @type {Point} */ [toX, toY]) {
  const square = (toX - fromX) ** 2 + (toY - fromY) ** 2;
  const part = square === 0 ? 0 : Math.min(1, Math.max(0, ((x - fromX) * (toX - fromX) + (y - fromY) * (toY - fromY)) / square));
  return Math.hypot(x - fromX - part * (toX - fromX), y - fromY - part * (toY - fromY));
}

/** The stretch, moved and cut so that it lies in the whole; null if it is the whole. */
export function within(/** @type {[number, number]} */ [from, to], /** @type {[number, number]} */ [first, last]) {
  const width = Math.min(to - from, last - first);
  const start = Math.min(Math.max(from, first), last - width);
  return width >= (last - first) * 0.999 ? null : /** @type {[number, number]} */ ([start, start + width]);
}

const asNumber = (/** @type {Metric | null} */ value) => (value === null ? NaN : Number(value));

/** The ends of an axis have a difference that is finite. */
const isDrawable = (/** @type {number} */ value) => Math.abs(value) < 1e300;

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
