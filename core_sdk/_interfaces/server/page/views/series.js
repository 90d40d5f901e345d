/** What a metric is called. */

/** @typedef {{group: string, name: string}} Named */

/** A formula has no group. */
export const nameOf = (/** @type {Named} */ { group, name }) => (group ? `${group}.${name}` : name);
