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
 * Runs under the heads of their groups, in the order of each group's first run.
 * @param {Run[]} runs
 * @param {string} name The column that says the group.
 * @param {Set<string>} folded The groups whose runs are not shown.
 * @returns {(Run | import("../../parts/grid.js").GroupItem)[]}
 */
export function grouped(runs, name, folded) {
  /** @type {Map<string, Run[]>} */
  const groups = new Map();
  for (const run of runs) {
    const value = formatValue(own(run.values, name));
    const group = groups.get(value);
    if (group) group.push(run);
    else groups.set(value, [run]);
  }
  return [...groups].flatMap(([group, members]) => {
    const isOpen = !folded.has(group);
    return [{ group: `${name}: ${group || "none"}`, key: group, count: members.length, isOpen }, ...(isOpen ? members : [])];
  });
}
