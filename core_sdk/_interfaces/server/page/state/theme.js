/** Dark or light: as the system has it, unless somebody has chosen. */

import { useEffect, useState } from "../preact.js";
import { useKeptTheme } from "./preferences.js";
/** @import { Preferences } from "api" */

/** @typedef {Preferences["theme"]} Theme */

const CHANGED = "themechanged";

/** The chosen theme and the function that changes it. @returns {[Theme, (theme: Theme) => Promise<void>]} */
export function useTheme() {
  const [theme, change] = useKeptTheme();
  useEffect(() => {
    const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
    const apply = () => {
      document.documentElement.dataset.theme = theme === "system" ? (systemIsDark.matches ? "dark" : "light") : theme;
      dispatchEvent(new Event(CHANGED));
    };
    apply();
    systemIsDark.addEventListener("change", apply);
    return () => systemIsDark.removeEventListener("change", apply);
  }, [theme]);
  return [theme, change];
}

/** A number that changes with the theme, for pictures that are drawn in the style sheet's colours. */
export function useThemeVersion() {
  const [version, setVersion] = useState(0);
  useEffect(() => {
    const update = () => setVersion((last) => last + 1);
    addEventListener(CHANGED, update);
    return () => removeEventListener(CHANGED, update);
  }, []);
  return version;
}

/** A colour: the name of one of the style sheet, for example `--text`, or any other in the words of CSS. @param {string} name */
export const colour = (name) => (name.startsWith("--") ? getComputedStyle(document.documentElement).getPropertyValue(name).trim() : name);

/** The same for a style, which follows the theme by itself. @param {string} name */
export const styleColour = (name) => (name.startsWith("--") ? `var(${name})` : name);
