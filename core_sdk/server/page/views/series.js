/** What a metric is called. */

/** @typedef {{group: string, name: string}} Named */

export const nameOf = (/** @type {Named} */ { group, name }) => `${group}.${name}`;
