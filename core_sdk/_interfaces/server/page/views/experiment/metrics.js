/** The names of metrics that an experiment's trials have. */

import { address } from "../../state/api.js";
import { once, useAnswer } from "../../state/answers.js";
/** @import { ColumnAnswer } from "api" */

/** @param {number} experimentId @returns {string[]} */
export function useMetricNames(experimentId) {
  const { value } = useAnswer(address(["columns"], { experiment: experimentId }), once);
  return namesOfMetrics(value?.columns ?? []);
}

export const namesOfMetrics = (/** @type {ColumnAnswer[]} */ columns) => columns.filter(({ kind }) => kind === "metric").map(({ name }) => name);
