/** What a chart has curves of, trials or groups of them, and how these are told apart: pure functions. */

import { dashOf, dashWithin, seriesColour } from "../../charts/palette.js";
import { rampColour, scaleOf } from "../../charts/search/scale.js";
import { own } from "../../parts/own.js";
import { formatValue } from "../../parts/text.js";
/** @import { Run, RunFields } from "../runs/grouping.js" */

/**
 * @typedef {object} Subject
 * @property {string} key A trial's ID, or the key of a group.
 * @property {string} name
 * @property {string} label Its name, and what tells it from the others.
 * @property {number[]} ids Its trials.
 * @property {Pick<RunFields, "started" | "steps"> & {[name: string]: unknown}} values Those of the trial, or of the first one of the group.
 */
/** @typedef {{colour: string, dash: number[]}} Look */
/** What a colour means: a scale of numbers, or a list of values. @typedef {{name: string, ticks: {place: number, text: string}[], values: {text: string, colour: string}[]}} Legend */

const MAX_NAMES = 3;
const UNKNOWN = "--line-strong";
/** @type {Record<string, string>} */
const STATES = {
  ACTIVE: "--active",
  QUEUED: "--text-soft",
  PAUSED: "--paused",
  COMPLETED: "--completed",
  CANCELED: "--canceled",
  ERROR: "--error",
};

/** A name that was generated ends with the number. */
const nameOf = (/** @type {Run} */ { key, values: { name } }) =>
  String(name ?? "").endsWith(`-${key}`) ? String(name) : [name, key].filter(Boolean).join(" ");

/** Trials, named by the hyperparameters in which they differ. @param {Run[]} runs @param {string[]} names @returns {Subject[]} */
export function trialSubjects(runs, names) {
  const textOf = (/** @type {Run} */ { values }, /** @type {string} */ name) => formatValue(own(values, name));
  const differing = names.filter((name) => new Set(runs.map((run) => textOf(run, name))).size > 1).slice(0, MAX_NAMES);
  const differences = (/** @type {Run} */ run) => differing.filter((name) => textOf(run, name)).map((name) => `${name} ${textOf(run, name)}`);
  return runs.map((run) => ({
    key: run.key,
    name: nameOf(run),
    label: [nameOf(run), differences(run).join(", ")].filter(Boolean).join(" · "),
    ids: [run.values.id],
    values: run.values,
  }));
}

/**
 * A number for each key, which it keeps as long as it is there: what others show, hide or sort leaves its look alone.
 * @param {Map<string, number>} former
 * @param {string[]} keys
 */
export function slotsOf(former, keys) {
  const slots = new Map([...former].filter(([key]) => keys.includes(key)));
  const taken = new Set(slots.values());
  for (const key of keys) {
    if (slots.has(key)) continue;
    let free = 0;
    while (taken.has(free)) free += 1;
    slots.set(key, free);
    taken.add(free);
  }
  return slots;
}

/**
 * How each subject is drawn, by its key, and what the colours mean.
 * @param {Subject[]} subjects
 * @param {Map<string, number>} slots
 * @param {{by: string, isGrouped: boolean, isLogarithmic: boolean | null, ramp: string[]}} options `by` is empty, or the
 *   name of what gives the colour.
 * @returns {{looks: Map<string, Look>, legend: Legend | null}}
 */
export function looksOf(subjects, slots, { by, isGrouped, isLogarithmic, ramp }) {
  if (by === "") {
    const look = (/** @type {number} */ slot) => ({ colour: seriesColour(slot), dash: isGrouped ? dashOf(slot) : dashWithin(Math.floor(slot / 10)) });
    return { looks: new Map(subjects.map(({ key }) => [key, look(/** @type {number} */ (slots.get(key)))])), legend: null };
  }
  const valueOf = (/** @type {Subject} */ { values }) => own(values, by);
  const scale = scaleOf(by, subjects.map(valueOf), isLogarithmic);
  const texts = [...new Set(subjects.map((subject) => formatValue(valueOf(subject))))].sort();
  const colourOf = (/** @type {Subject} */ subject) => {
    const value = valueOf(subject);
    if (value == null || value === "") return UNKNOWN;
    if (by === "state") return STATES[String(value)] ?? UNKNOWN;
    if (!scale.isNumeric) return seriesColour(texts.indexOf(formatValue(value)));
    return Number.isFinite(scale.place(value)) ? rampColour(scale.place(value), ramp) : UNKNOWN;
  };
  // Those of one colour are told apart by their dashes, in an order that does not change.
  /** @type {Map<string, number>} */
  const counts = new Map();
  /** @type {Map<string, Look>} */
  const looks = new Map();
  for (const subject of [...subjects].sort((one, other) => one.ids[0] - other.ids[0])) {
    const colour = colourOf(subject);
    const count = counts.get(colour) ?? 0;
    counts.set(colour, count + 1);
    looks.set(subject.key, { colour, dash: dashWithin(count) });
  }
  const colours = new Map(subjects.map((subject) => [formatValue(valueOf(subject)) || "none", colourOf(subject)]));
  const values = [...colours].sort().map(([text, colour]) => ({ text, colour }));
  return { looks, legend: { name: by, ticks: scale.isNumeric ? scale.ticks : [], values: scale.isNumeric ? [] : values } };
}
