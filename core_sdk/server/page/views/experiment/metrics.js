/** The names of metrics that trials have. */

import { address } from "../../state/api.js";
import { useAnswer } from "../../state/answers.js";

/** @returns {string[]} */
export function useMetricNames() {
  const { value } = useAnswer(address(["columns"]), { follows: () => false });
  return (value?.columns ?? []).filter((/** @type {any} */ { kind }) => kind === "metric").map((/** @type {any} */ { name }) => name);
}
