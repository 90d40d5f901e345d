/** The names of metrics that an experiment's trials have. */

import { address } from "../../state/api.js";
import { useAnswer } from "../../state/answers.js";

/** @param {number} experimentId @returns {string[]} */
export function useMetricNames(experimentId) {
  const { value } = useAnswer(address(["columns"], { experiment: experimentId }), { follows: () => false });
  return (value?.columns ?? []).filter((/** @type {any} */ { kind }) => kind === "metric").map((/** @type {any} */ { name }) => name);
}
