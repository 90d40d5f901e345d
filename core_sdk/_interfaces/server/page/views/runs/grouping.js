/** Rows under the heads of their groups: a pure function of rows and settings. */

import { formatValue } from "../../parts/text.js";
import { own } from "../../parts/own.js";

/**
 * What a trial has in each column: fields of every trial, and metrics and hyperparameters of any name.
 * @typedef {object} RunFields
 * @property {number} id
 * @property {string} experiment
 * @property {number} experiment_id
 * @property {string} state
 * @property {number | null} progress
 * @property {string} reason
 * @property {string} status
 * @property {string[]} label
 * @property {number} started
 * @property {number} steps
 * @property {number | null} ended
 * @property {number} duration
 * @property {boolean} archived
 */
/** @typedef {RunFields & {[name: string]: unknown}} RunValues */

/**
 * A trial of the table.
 * @typedef {object} Run
 * @property {string} key
 * @property {RunValues} values By the name of a column.
 */

/**
 * What is typical of a column's values in a group. Values that are not finite numbers are left out and counted.
 * @typedef {object} Aggregate
 * @property {number} mean
 * @property {number | null} std The standard deviation of a sample; null for a single value.
 * @property {number} count
 * @property {number} numLeftOut
 */

/**
 * The head of a group.
 * @typedef {object} RunGroup
 * @property {string} group
 * @property {string} key
 * @property {number} count
 * @property {boolean} isOpen
 * @property {number[]} ids Its runs.
 * @property {RunValues} values The values of its first run.
 * @property {Record<string, Aggregate>} aggregates By the name of a column; without columns that have no number.
 * @property {{id: number, value: number} | null} best
 */

/**
 * Runs under the heads of their groups, in the order of each group's first run.
 * @param {Run[]} runs
 * @param {string[]} names The columns that say the group.
 * @param {Set<string>} folded The groups whose runs are not shown.
 * @param {string[]} [aggregated] The columns of which the heads show what is typical.
 * @param {string} [ranking] min.METRIC or max.METRIC, by which a run is the best of its group; empty if nothing says it.
 * @returns {(Run | RunGroup)[]}
 */
export function grouped(runs, names, folded, aggregated = [], ranking = "") {
  /** @type {Map<string, Run[]>} */
  const groups = new Map();
  for (const run of runs) {
    const key = JSON.stringify(names.map((name) => comparable(own(run.values, name))));
    const group = groups.get(key);
    if (group) group.push(run);
    else groups.set(key, [run]);
  }
  return [...groups].flatMap(([key, members]) => {
    const isOpen = !folded.has(key);
    const title = names.map((name) => `${name}: ${formatValue(comparable(own(members[0].values, name))) || "none"}`).join(", ");
    const aggregates = aggregated.flatMap((name) => {
      const found = aggregateOf(members.map((run) => own(run.values, name)));
      return found ? [/** @type {[string, Aggregate]} */ ([name, found])] : [];
    });
    const head = {
      group: title,
      key,
      count: members.length,
      isOpen,
      ids: members.map((run) => Number(run.key)),
      values: members[0].values,
      aggregates: Object.fromEntries(aggregates),
      best: bestOf(members, ranking),
    };
    return [head, ...(isOpen ? members : [])];
  });
}

/** @param {unknown[]} values @returns {Aggregate | null} */
export function aggregateOf(values) {
  const finite = values.filter((value) => typeof value === "number");
  const count = finite.length;
  if (count === 0) return null;
  const mean = finite.reduce((sum, value) => sum + value / count, 0);
  const std = count === 1 ? null : Math.sqrt(finite.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (count - 1));
  return { mean, std, count, numLeftOut: values.filter((value) => value != null).length - count };
}

/** Of equal values that of the earlier run is the best. @param {Run[]} runs @param {string} ranking */
function bestOf(runs, ranking) {
  const sign = ranking.startsWith("max.") ? -1 : 1;
  /** @type {{id: number, value: number} | null} */
  let best = null;
  for (const { values } of [...runs].sort((one, other) => one.values.id - other.values.id)) {
    const value = own(values, ranking);
    if (typeof value === "number" && (best === null || sign * value < sign * best.value)) best = { id: values.id, value };
  }
  return best;
}

/** The same labels are the same in any order. */
const comparable = (/** @type {unknown} */ value) => (Array.isArray(value) ? [...value].sort().join(", ") : (value ?? null));
