/** What all views with charts know of series: what they are called, and how many an answer has. */

/** How many curves an answer of the server has at most. */
export const MAX_CURVES = 64;

/** @typedef {{group: string, name: string}} Named */

export const nameOf = (/** @type {Named} */ { group, name }) => `${group}.${name}`;
