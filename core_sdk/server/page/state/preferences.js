/** What this browser remembers beside the URL: the theme and saved views. */

import { useState } from "../preact.js";

const PREFIX = "core-sdk.";

/**
 * A remembered value and the function that changes it.
 * @template T
 * @param {string} name
 * @param {T} standard
 * @returns {[T, (value: T) => void]}
 */
export function usePreference(name, standard) {
  const [value, setValue] = useState(() => read(name, standard));
  const change = (/** @type {T} */ next) => {
    setValue(next);
    write(name, next);
  };
  return [value, change];
}

function read(/** @type {string} */ name, /** @type {any} */ standard) {
  try {
    return JSON.parse(localStorage.getItem(PREFIX + name) ?? "null") ?? standard;
  } catch {
    return standard; // Storage that is switched off, or was written by something else.
  }
}

function write(/** @type {string} */ name, /** @type {any} */ value) {
  try {
    localStorage.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // Without storage the choice lasts as long as the page.
  }
}
