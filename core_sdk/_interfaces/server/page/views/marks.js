/** Where a trial was restarted, and where its script gave an alert, in charts of the trial. Pure. */

/** @import { AlertRow, Curve } from "api" */
/** @import { Mark } from "../charts/plot.js" */

/** @typedef {{series: Curve, origin: number, isFaint?: boolean}} Drawn A curve of the trial. */

/** A mark for each later attempt, where the curves go on. @param {number[]} resumePoints @param {Drawn[]} curves @returns {Mark[]} */
export function restartMarks(resumePoints, curves) {
  const curve = curves.find(({ isFaint }) => !isFaint);
  return curve === undefined ? [] : resumePoints.flatMap((steps) => markAt(placeOf(curve, steps), { label: "restart" }));
}

/**
 * A mark for each alert, on the axis of the curves.
 * @param {AlertRow[]} alerts
 * @param {Drawn[]} curves
 * @param {string} axis
 * @param {(alert: AlertRow) => {text: string, colour: string, key?: string}} look
 * @returns {Mark[]}
 */
export function alertMarks(alerts, curves, axis, look) {
  const curve = curves.find(({ isFaint }) => !isFaint);
  if (curve === undefined) return [];
  return alerts.flatMap((alert) => {
    const { steps_completed: steps, time } = alert;
    const x = axis === "steps" ? steps : axis === "time" ? time - curve.origin : placeOf(curve, steps);
    return markAt(x, { label: "", ...look(alert) });
  });
}

/** The place of a step on the axis of a curve; null if the curve does not reach it. @param {Drawn} curve @param {number} step */
function placeOf({ series, origin }, step) {
  const x = series.x[series.last_steps.findIndex((steps) => steps >= step)] ?? null;
  return x === null ? null : x - origin;
}

/** @param {number | null} x @param {Omit<Mark, "x">} mark @returns {Mark[]} */
const markAt = (x, mark) => (x === null ? [] : [{ x, ...mark }]);
