/** The metrics of the trials that a view draws: the first ones, and all of them where somebody looks for some. */

import { useCallback, useState } from "../../preact.js";
import { address } from "../../state/api.js";
import { useAnswer } from "../../state/answers.js";
import { useSetting } from "../../state/place.js";
/** @import { Change } from "../../state/events.js" */

const MOST = 100_000;
/** The largest number that a list has for choosing one. */
const MOST_CHOICES = 1000;

/**
 * @typedef {object} MetricNames
 * @property {string[]} names As `group.name`.
 * @property {string[]} choices The first of them.
 * @property {number} numFound The number of all that there are.
 * @property {boolean} isLoading Whether the names are not known yet.
 * @property {() => void} readAll Reads all names, for somebody who looks for one.
 */

/** @param {number[]} trials @param {string} [rank] A rank or a writer that has reported them. @returns {MetricNames} */
export function useMetricNames(trials, rank = "") {
  const [search] = useSetting("metrics");
  const [panels] = useSetting("panels");
  const [isAsked, setIsAsked] = useState(false);
  const readAll = useCallback(() => setIsAsked(true), []);
  const question = { trials, rank };
  const options = {
    about: `metric names ${rank}`,
    follows: (/** @type {Change} */ { trials: changed }) => changed.some((id) => trials.includes(id)),
  };
  const first = useAnswer(trials.length > 0 ? address(["metrics"], question) : null, options);
  const isPart = first.value !== undefined && first.value.next !== null;
  const whole = useAnswer(isPart && (isAsked || search !== "" || panels !== "") ? address(["metrics"], { ...question, limit: MOST }) : null, options);
  const { names = NONE, num_found: numFound = 0 } = whole.value ?? first.value ?? {};
  const isLoading = first.value === undefined && first.error === null && trials.length > 0;
  return { names, choices: names.length > MOST_CHOICES ? names.slice(0, MOST_CHOICES) : names, numFound, isLoading, readAll };
}

/** @type {string[]} */
const NONE = [];
