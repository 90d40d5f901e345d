/**
 * What the home remembers besides the URL: the theme and saved views. The browser cannot, since the page has another
 * address after each start of the server.
 */

import { useState } from "../preact.js";
import { once, useAnswer } from "./answers.js";
import { act, address } from "./api.js";
/** @import { Preferences, SavedView } from "api" */

const THEME = "core-sdk.theme";
/** In a lab many people look at one home, at an address that stays: each browser remembers a theme of its own. */
const isInLab = globalThis.location?.pathname.startsWith("/w/") ?? false;

/** The remembered theme, and the function that changes it, which fails if that will be forgotten with this page. */
export function useKeptTheme() {
  const { value: kept } = useAnswer(address(["preferences"]), once);
  const [chosen, setChosen] = useState(isInLab ? themeOfBrowser() : undefined);
  const change = async (/** @type {Preferences["theme"]} */ theme) => {
    setChosen(theme);
    if (isInLab) localStorage.setItem(THEME, theme);
    else await keep({ theme });
  };
  return /** @type {const} */ ([chosen ?? kept?.theme ?? "system", change]);
}

/** @returns {Preferences["theme"] | undefined} */
function themeOfBrowser() {
  try {
    const theme = localStorage.getItem(THEME);
    return theme === "light" || theme === "dark" ? theme : "system";
  } catch {
    return "system"; // Storage that is switched off.
  }
}

/**
 * The saved views, and the functions that save and forget one. Both leave all other views as the home has them, also
 * those that another page has saved meanwhile.
 */
export function useSavedViews() {
  const { value: kept, reload } = useAnswer(address(["preferences"]), once);
  return {
    views: kept?.views ?? [],
    save: (/** @type {Omit<SavedView, "author">} */ view) => keep({ save_view: view }).then(reload),
    forget: (/** @type {string} */ name) => keep({ forget_view: name }).then(reload),
  };
}

const keep = (/** @type {object} */ change) => act(["preferences", "actions", "keep"], change);
