/**
 * The view that the page shows is its URL's fragment, `#/trials/3/logs?rank=0`, so that a link shows a colleague the same.
 */

import { useCallback, useLayoutEffect, useMemo, useState } from "../preact.js";

/** @typedef {{path: string[], query: URLSearchParams}} Place */

const CHANGED = "placechanged";

/** @returns {Place} */
export const currentPlace = () => placeOf(location.hash);

/** @param {string} hash @returns {Place} */
function placeOf(hash) {
  const [path, query] = splitAtFirst(hash.replace(/^#\/?/, ""), "?");
  return { path: path.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(query) };
}

/**
 * The link to a view.
 * @param {(string | number)[]} path
 * @param {Record<string, string | number | null | undefined>} [query] What is null or empty is left out.
 */
export function linkTo(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value != null && value !== "");
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return `#/${path.map((part) => encodeURIComponent(part)).join("/")}${text && `?${text}`}`;
}

/** Shows another view, which the browser's back button leaves. @param {string} link */
export function go(link) {
  location.hash = link;
}

/** The place, and a new rendering whenever it changes. @returns {Place} */
export function usePlace() {
  const [hash, setHash] = useState(location.hash);
  useLayoutEffect(() => {
    const update = () => setHash(location.hash);
    // Another component of the same rendering may have changed the place, before this one listened.
    update();
    addEventListener("hashchange", update);
    addEventListener(CHANGED, update);
    return () => {
      removeEventListener("hashchange", update);
      removeEventListener(CHANGED, update);
    };
  }, []);
  return useMemo(() => placeOf(hash), [hash]);
}

/**
 * A setting of the view that the URL holds: its value and the function that changes it.
 * @param {string} name
 * @param {string} [standard] The value that the URL does not mention.
 * @returns {[string, (value: string) => void]}
 */
export function useSetting(name, standard = "") {
  const { query } = usePlace();
  const change = useCallback((/** @type {string} */ value) => changeSettings({ [name]: value === standard ? null : value }), [name, standard]);
  return [query.get(name) ?? standard, change];
}

/**
 * A setting that is a list of names.
 * @param {string} name
 * @param {string[]} [standard]
 * @returns {[string[], (values: string[]) => void]}
 */
export function useListSetting(name, standard = []) {
  const [text, change] = useSetting(name, joined(standard));
  return [splitNames(text), (values) => change(joined(values))];
}

/** Changes settings of the view where it is. @param {Record<string, string | null>} settings */
export function changeSettings(settings) {
  const { path, query } = currentPlace();
  for (const [name, value] of Object.entries(settings)) {
    if (value === null) query.delete(name);
    else query.set(name, value);
  }
  history.replaceState(null, "", linkTo(path, Object.fromEntries(query)));
  if (KEPT.some((name) => name in settings)) keep(query);
  dispatchEvent(new Event(CHANGED));
}

/** Settings of charts that this tab of the browser keeps for the next view with charts. */
const KEPT = ["panels", "by", "smoothing", "sofar", "x", "log", "logx", "outliers", "colour", "scale", "facet", "baseline"];
const KEPT_NAME = "core-sdk.charts";

/** Gives a view the settings that charts had last, unless its address has its own. */
export function useKeptSettings() {
  const { path } = usePlace();
  useLayoutEffect(() => {
    const { query } = currentPlace();
    const kept = keptSettings();
    if (Object.keys(kept).length > 0 && !KEPT.some((name) => query.has(name))) changeSettings(kept);
  }, [path.join("/")]);
}

function keep(/** @type {URLSearchParams} */ query) {
  try {
    sessionStorage.setItem(KEPT_NAME, JSON.stringify(Object.fromEntries([...query].filter(([name]) => KEPT.includes(name)))));
  } catch {
    // Storage that is switched off: only the address holds them.
  }
}

/** @returns {Record<string, string>} */
function keptSettings() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT_NAME) ?? "{}");
  } catch {
    return {};
  }
}

// Names of metrics may hold any character, so a comma within a name is escaped.
const joined = (/** @type {string[]} */ values) => values.map((value) => value.replace(/[\\,]/g, "\\$&")).join(",");
export const splitNames = (/** @type {string} */ text) =>
  text === "" ? [] : (text.match(/(?:\\.|[^,\\])+/g) ?? []).map((part) => part.replace(/\\(.)/g, "$1"));

function splitAtFirst(/** @type {string} */ text, /** @type {string} */ mark) {
  const index = text.indexOf(mark);
  return index < 0 ? [text, ""] : [text.slice(0, index), text.slice(index + 1)];
}

function decoded(/** @type {string} */ part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // A link that somebody has typed.
  }
}
