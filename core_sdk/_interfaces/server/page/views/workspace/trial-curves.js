/** The curves and marks of a trial in a chart. Pure. */

import { dashWithin, NUM_COLOURS, seriesColour } from "../../charts/palette.js";
import { alertMarks, restartMarks } from "../marks.js";
import { nameOf } from "../series.js";
import { sourceName } from "../rank-choice.js";
/** @import { AlertRow, Curve, MetricsAnswer } from "api" */
/** @import { Look, Subject } from "./subjects.js" */

/**
 * @typedef {object} Options
 * @property {Look | null} look How the trial is told from others; null if there are none: its metrics and ranks have colours then.
 * @property {string[]} names The curves of the chart: its metrics, or a formula.
 * @property {string} axis
 * @property {boolean} hasAllRanks
 */

/** The curves of a trial, those that are superseded first. @param {Subject} subject @param {MetricsAnswer} answer @param {Options} options */
export function curvesOf({ key, label, values }, { curves, superseded }, { look, names, axis, hasAllRanks }) {
  const isOfMany = names.length > 1;
  const ranks = [...new Set([...superseded, ...curves].map(({ rank }) => rank))];
  const curveOf = (/** @type {Curve} */ series, /** @type {boolean} */ isFaint) => {
    const index = names.indexOf(nameOf(series));
    const number = index + names.length * ranks.indexOf(series.rank);
    const words = [label, isOfMany && nameOf(series), hasAllRanks && sourceName(series.rank), isFaint && `attempt ${series.attempt}`];
    return {
      key: look ? key : undefined,
      label: words.filter(Boolean).join(", ") || nameOf(series),
      colour: look ? look.colour : seriesColour(number),
      // Several metrics of a trial that has a colour share it, and its curves differ in their dash.
      dash: look ? (isOfMany ? dashWithin(index) : look.dash) : dashWithin(Math.floor(number / NUM_COLOURS)),
      series,
      origin: axis === "time" ? values.started : 0,
      isFaint,
    };
  };
  return [...superseded.map((series) => curveOf(series, true)), ...curves.map((series) => curveOf(series, false))];
}

/**
 * The alerts of a trial, and its restarts where it has a chart of its own.
 * @param {Subject} subject
 * @param {MetricsAnswer} answer
 * @param {ReturnType<typeof curvesOf>} curves
 * @param {Options} options
 */
export function marksOf({ key, name }, { resume_points: resumePoints, alerts }, curves, { look, axis }) {
  const ofOwn = (/** @type {AlertRow} */ { title, description, level }) => ({
    text: [title, description].filter(Boolean).join(": "),
    colour: level === "error" ? "--error" : "--paused",
  });
  const ofMany = (/** @type {AlertRow} */ { title }) => ({ key, text: `${name}: ${title}`, colour: /** @type {Look} */ (look).colour });
  return [...(look ? [] : restartMarks(resumePoints, curves)), ...alertMarks(alerts, curves, axis, look ? ofMany : ofOwn)];
}
