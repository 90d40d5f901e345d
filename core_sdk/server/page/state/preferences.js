/**
 * What the home remembers beside the URL: the theme and saved views. The browser cannot, since the page has another
 * address after each start of the server.
 */

import { useState } from "../preact.js";
import { once, useAnswer } from "./answers.js";
import { act, address } from "./api.js";
/** @import { Preferences } from "api" */

/**
 * A remembered value, and the function that changes it, which fails if that will be forgotten with this page.
 * @template {keyof Preferences} Name
 * @param {Name} name
 * @param {Preferences[Name]} standard
 * @returns {[Preferences[Name], (value: Preferences[Name]) => Promise<void>]}
 */
export function usePreference(name, standard) {
  const { value: kept } = useAnswer(address(["preferences"]), once);
  const [chosen, setChosen] = useState(/** @type {Preferences[Name] | undefined} */ (undefined));
  const change = async (/** @type {Preferences[Name]} */ next) => {
    setChosen(next);
    await act(["preferences", "actions", "keep"], { [name]: next });
  };
  return [chosen ?? kept?.[name] ?? standard, change];
}
