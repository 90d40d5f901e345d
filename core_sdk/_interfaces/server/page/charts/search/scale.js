/** The scale of one hyperparameter or metric: from its values to places between 0 and 1. Pure. */

import { formatValue } from "../../parts/text.js";
import { roundTicks } from "../ticks.js";
/** @import { Choice } from "api" */

const LOGARITHMIC_FROM = 50;

/** @typedef {{id: number, values: Record<string, unknown>}} Drawn A trial, with its values by the names of scales. */

/**
 * @typedef {object} Scale
 * @property {string} name
 * @property {string} title What it is called.
 * @property {boolean} isNumeric
 * @property {(value: unknown) => number} place From 0 to 1; NaN for what has no place.
 * @property {{place: number, text: string}[]} ticks
 */

/**
 * The scale that the configuration says, with its ends and its order. Without one it is numeric for numbers, and
 * logarithmic if these are positive and span a factor of 50 or more; of other values each has its place.
 * @param {string} name
 * @param {unknown[]} values
 * @param {boolean | null} [isLogarithmic] Whether it is, if its values are positive; null leaves it to them.
 * @param {Choice} [choice] What a searcher chose the values from.
 * @returns {Scale}
 */
export function scaleOf(name, values, isLogarithmic = null, choice) {
  const known = values.filter((value) => value !== null && value !== undefined);
  const numbers = known.filter(isFiniteNumber);
  if (choice?.values) return categoricalScale(name, known, choice.values);
  if (numbers.length === 0 || numbers.length < known.filter((value) => !isNonFinite(value)).length) return categoricalScale(name, known);
  const ends = [choice?.low, choice?.high].filter(isFiniteNumber);
  return numericScale(name, [...numbers, ...ends], isLogarithmic ?? choice?.is_logarithmic ?? null);
}

/** @param {string} name @param {number[]} values @param {boolean | null} wanted @returns {Scale} */
function numericScale(name, values, wanted) {
  const low = values.reduce((least, value) => Math.min(least, value), Infinity);
  const high = values.reduce((most, value) => Math.max(most, value), -Infinity);
  const isLogarithmic = low > 0 && (wanted ?? high / low >= LOGARITHMIC_FROM);
  const bend = isLogarithmic ? Math.log : (/** @type {number} */ value) => value;
  const width = bend(high) - bend(low);
  const place = (/** @type {unknown} */ value) => (typeof value !== "number" ? NaN : width === 0 ? 0.5 : (bend(value) - bend(low)) / width);
  const ticks = roundTicks(low, high, isLogarithmic).map((tick) => ({ place: place(tick), text: formatValue(tick) }));
  return { name, title: name, isNumeric: true, place, ticks };
}

/** @param {string} name @param {unknown[]} values @param {unknown[]} [order] The values that come first, in this order. @returns {Scale} */
function categoricalScale(name, values, order = []) {
  const texts = [...new Set([...order.map(formatValue), ...values.map(formatValue).sort()])];
  const places = new Map(texts.map((text, index) => [text, texts.length === 1 ? 0.5 : index / (texts.length - 1)]));
  const shown = texts.length <= 12 ? texts : texts.filter((_, index) => index % Math.ceil(texts.length / 12) === 0);
  const place = (/** @type {unknown} */ value) => (value === null || value === undefined ? NaN : (places.get(formatValue(value)) ?? NaN));
  return { name, title: name, isNumeric: false, place, ticks: shown.map((text) => ({ place: /** @type {number} */ (places.get(text)), text })) };
}

/** @param {unknown} value @returns {value is number} */
const isFiniteNumber = (value) => Number.isFinite(value);
const isNonFinite = (/** @type {unknown} */ value) => value === "NaN" || value === "Infinity" || value === "-Infinity";

/** Black or white, whichever can be read on a colour of the ramp. @param {string} ground */
export function readableOn(ground) {
  const [red, green, blue] = (ground.match(/\d+/g) ?? ["255", "255", "255"]).map(Number);
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#10141b" : "#ffffff";
}

/** The colour of a place: the ramp of the style sheet. @param {number} place @param {string[]} ramp Colours as #rrggbb. */
export function rampColour(place, ramp) {
  if (!Number.isFinite(place)) return "transparent";
  const at = Math.min(Math.max(place, 0), 1) * (ramp.length - 1);
  const index = Math.min(Math.floor(at), ramp.length - 2);
  const mix = (/** @type {number} */ start) => {
    const [one, other] = [ramp[index], ramp[index + 1]].map((colour) => parseInt(colour.slice(start, start + 2), 16));
    return Math.round(one + (other - one) * (at - index));
  };
  return `rgb(${mix(1)} ${mix(3)} ${mix(5)})`;
}
