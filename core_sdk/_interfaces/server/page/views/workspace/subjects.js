/** What a chart has curves of, trials or groups of them, and how these are told apart: pure functions. */

import { dashOf, dashWithin, NUM_COLOURS, NUM_DASHES, seriesColour } from "../../charts/palette.js";
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
 * @property {Pick<RunFields, "started" | "steps"> & {[name: string]: unknown}} values The values of the trial, or of the first one of the group.
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
 * A slot for each trial, which says its colour and its dash. It depends on the trials that are shown, and on nothing that
 * was shown before: its colour is by its ID, unless that has been given to an earlier trial and another one is less used.
 * @param {number[]} ids
 * @returns {Map<string, number>}
 */
export function slotsOfTrials(ids) {
  const uses = Array.from({ length: NUM_COLOURS }, () => Array(NUM_DASHES).fill(0));
  const total = (/** @type {number[]} */ of) => of.reduce((sum, one) => sum + one, 0);
  /** @type {Map<string, number>} */
  const slots = new Map();
  for (const id of [...ids].sort((one, other) => one - other)) {
    const colour = leastUsed(uses.map(total), id - 1);
    const dash = leastUsed(uses[colour], 0);
    uses[colour][dash] += 1;
    slots.set(String(id), colour + NUM_COLOURS * dash);
  }
  return slots;
}

/** The first of the least used, looked for from a start on and around. @param {number[]} counts @param {number} start */
function leastUsed(counts, start) {
  const order = counts.map((_, index) => (start + index) % counts.length);
  return order.reduce((best, index) => (counts[index] < counts[best] ? index : best));
}

/** A slot for each group of the list, shown or not, in the order of their keys. @param {string[]} keys */
export const slotsOfGroups = (keys) => new Map([...keys].sort(collator.compare).map((key, index) => [key, index]));

const collator = new Intl.Collator("en", { numeric: true });

/**
 * What the colours of groups tell: what was chosen, or the numbers by which they are grouped, whose order is to be seen.
 * @param {Pick<Subject, "values">[]} subjects
 * @param {string[]} names Those by which trials are grouped.
 * @param {string} chosen
 */
export function colourOfGroups(subjects, names, chosen) {
  if (chosen !== "") return names.includes(chosen) ? chosen : "";
  const numbers = new Set(subjects.map(({ values }) => own(values, names[0])).filter((value) => typeof value === "number"));
  return names.length === 1 && numbers.size > 2 ? names[0] : "";
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
    const look = (/** @type {number} */ slot) => ({
      colour: seriesColour(slot),
      dash: isGrouped ? dashOf(slot) : dashWithin(Math.floor(slot / NUM_COLOURS)),
    });
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
  // Curves of one colour are told apart by their dashes, in an order that does not change.
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
