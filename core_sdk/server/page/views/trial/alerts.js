/** Where the alerts of a trial stand in its charts. */

/** @import { AlertRow, Curve } from "api" */
/** @import { Mark } from "../../charts/plot.js" */

/**
 * A mark for each alert that no later attempt has superseded.
 * @param {AlertRow[]} alerts
 * @param {{series: Curve, isFaint?: boolean}[]} curves
 * @param {"steps" | "time" | "epochs"} axis
 * @param {number} origin
 * @returns {Mark[]}
 */
export function alertMarks(alerts, curves, axis, origin) {
  const series = curves.find(({ isFaint }) => !isFaint)?.series;
  if (series === undefined) return [];
  return alerts
    .filter(({ is_superseded: isSuperseded }) => !isSuperseded)
    .flatMap(({ steps_completed: steps, time, title, description, level }) => {
      const x = axis === "steps" ? steps : axis === "time" ? time : placeAt(series, steps);
      const text = [title, description].filter(Boolean).join(": ");
      return x === null ? [] : [{ x: x - origin, label: "⚠", text, isError: level === "error" }];
    });
}

/** The place of a step on the axis of a curve; null if the curve does not reach it. @param {Curve} series @param {number} step */
export const placeAt = (series, step) => series.x[series.last_steps.findIndex((steps) => steps >= step)] ?? null;
