/** Values by names that a run has chosen, which may be `constructor` or `__proto__`. */

/**
 * What the object itself has under the name, and nothing that every object has.
 * @template T
 * @param {Record<string, T>} object
 * @param {string} name
 * @returns {T | undefined}
 */
export const own = (object, name) => (Object.hasOwn(object, name) ? object[name] : undefined);
