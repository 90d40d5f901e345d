/** What is said of groups of trials: pure functions of the server's answers. */

import { counted, formatDuration, formatNumber, formatValue } from "../../parts/text.js";
/** @import { GroupAnswer, GroupedChartAnswer } from "api" */

/** How many groups are named of which trials have ended. */
const MAX_ENDED = 3;

/** Says what a group has of each name, for the names in which the groups differ. @param {string[]} names @param {GroupAnswer[]} groups */
export function labelsOf(names, groups) {
  const differing = names.map((_, index) => index).filter((index) => new Set(groups.map(({ values }) => textOf(values[index]))).size > 1);
  const shown = differing.length > 0 ? differing : names.map((_, index) => index);
  return groups.map(({ values }) => shown.map((index) => `${names[index]} ${textOf(values[index])}`).join(", "));
}

/** Says how the curves of a chart were made. @param {GroupedChartAnswer} chart @param {string[]} labels By group. @param {string} axis */
export function noteOf({ curves }, labels, axis) {
  if (curves.length === 0) return axis === "steps" ? "" : `No trial has reported ${axis} with this metric.`;
  const places = axis === "time" ? "times" : axis;
  const binned = curves.filter(({ join }) => join === "bins");
  const sum = (/** @type {"num_left_out" | "num_unshared"} */ name) => curves.reduce((total, curve) => total + curve[name], 0);
  const most = Math.max(1, ...curves.filter(({ join }) => join === "common").map(({ width }) => width));
  const shared = `Joined at common ${places}${most === 1 ? "" : `, up to ${formatNumber(most)} reports to a point`}.`;
  const inBins = binned.map(({ group, width }) => `${labels[group]} in bins of ${stretch(width, axis)}`).join("; ");
  const ended = curves.flatMap(({ group, x, num_trials: counts }) => {
    const most = Math.max(...counts);
    const first = counts.lastIndexOf(most) + 1;
    return first < counts.length ? [`${labels[group]} has ${counts[first]} of ${most} trials from ${place(x[first], axis)} on`] : [];
  });
  const others = ended.length > MAX_ENDED ? `; and so in ${counted(ended.length - MAX_ENDED, "other group")}` : "";
  return [
    binned.length < curves.length && shared,
    inBins && `Few ${places} are common, so joined: ${inBins}.`,
    ended.length > 0 && `Trials end${axis === "time" ? " or pause" : ""}: ${ended.slice(0, MAX_ENDED).join("; ")}${others}.`,
    sum("num_unshared") > 0 &&
      `${counted(sum("num_unshared"), "point")} that only some trials have ${sum("num_unshared") === 1 ? "is" : "are"} left out.`,
    sum("num_left_out") > 0 && `${counted(sum("num_left_out"), "value")} that ${sum("num_left_out") === 1 ? "is" : "are"} not finite left out.`,
  ]
    .filter(Boolean)
    .join(" ");
}

const stretch = (/** @type {number} */ width, /** @type {string} */ axis) => (axis === "time" ? duration(width) : `${formatNumber(width)} ${axis}`);
const place = (/** @type {number} */ x, /** @type {string} */ axis) =>
  axis === "time" ? duration(x) : `${{ steps: "step", epochs: "epoch" }[axis] ?? axis} ${formatNumber(x)}`;
const duration = (/** @type {number} */ seconds) => (seconds < 10 ? `${formatNumber(seconds)} s` : formatDuration(seconds));

/** A metric, of which min. and max. are the extremes, as people say it. @param {string} name */
export const metricWords = (name) => (/^(min|max)\./.test(name) ? rankingWords(name) : `last ${name}`);

/** min.loss as people say it. */
export const rankingWords = (/** @type {string | null | undefined} */ name) =>
  name ? `${name.startsWith("min.") ? "smallest" : "largest"} ${name.slice(4)}` : "–";

const textOf = (/** @type {GroupAnswer["values"][number]} */ value) => (value === null || value === "" ? "none" : formatValue(value));
