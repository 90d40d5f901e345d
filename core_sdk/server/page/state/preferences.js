/**
 * What the home remembers beside the URL: the theme and saved views. The browser cannot, since the page has another
 * address after each start of the server.
 */

import { useState } from "../preact.js";
import { useAnswer } from "./answers.js";
import { act, address } from "./api.js";

/**
 * A remembered value, and the function that changes it, which fails if that will be forgotten with this page.
 * @template T
 * @param {"theme" | "views"} name
 * @param {T} standard
 * @returns {[T, (value: T) => Promise<void>]}
 */
export function usePreference(name, standard) {
  const { value: kept } = useAnswer(address(["preferences"]), { follows: () => false });
  const [chosen, setChosen] = useState(/** @type {T | undefined} */ (undefined));
  const change = async (/** @type {T} */ next) => {
    setChosen(next);
    await act(["preferences", "actions", "keep"], { [name]: next });
  };
  return [chosen ?? kept?.[name] ?? standard, change];
}
