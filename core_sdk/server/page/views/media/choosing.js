/** Which media are shown: their steps, and the one of each name at a step. Pure. */

/** @import { MediaItem, MediaSeries } from "api" */

const IS_PREFETCHED = new Set(["image", "figure", "histogram", "text", "confusion_matrix"]);

/** All steps at which any of them was reported, in order. @param {MediaSeries[]} series @returns {number[]} */
export const stepsOf = (series) =>
  [...new Set(series.flatMap(({ items }) => items.map(({ steps_completed: steps }) => steps)))].sort((one, other) => one - other);

/**
 * The newest item at or before a step. Of several at one step it is one that counts, if any does.
 * @param {MediaItem[]} items In the order of their steps.
 * @param {number} step
 * @returns {number} Its index; -1 if there is none.
 */
export function indexAt(items, step) {
  let index = items.findLastIndex(({ steps_completed: steps }) => steps <= step);
  const last = index;
  while (index > 0 && items[index].is_superseded && items[index - 1].steps_completed === items[last].steps_completed) index -= 1;
  return index >= 0 && items[index].is_superseded ? last : index;
}

/** The index of the step that is shown: the given one or the last before it; without one the last of all. @param {number[]} steps @param {number | null} step */
export const placeOf = (steps, step) =>
  step === null
    ? steps.length - 1
    : Math.max(
        0,
        steps.findLastIndex((one) => one <= step),
      );

/** The series by group, in the order in which groups were first reported. @param {MediaSeries[]} series */
export function sectionsOf(series) {
  /** @type {Map<string, MediaSeries[]>} */
  const sections = new Map();
  for (const one of series) sections.set(one.group, [...(sections.get(one.group) ?? []), one]);
  return [...sections].map(([title, members]) => ({ title, members }));
}

/** The kinds that there are. @param {MediaSeries[]} series @returns {string[]} */
export const kindsOf = (series) => [...new Set(series.map(({ items }) => items[0].kind))];

/** Series of a kind, or of all, whose name has a text in it. @param {MediaSeries[]} series @param {string} kind @param {string} search */
export const filtered = (series, kind, search) =>
  series.filter(
    ({ group, name, items }) => (kind === "" || items[0].kind === kind) && `${group}.${name}`.toLowerCase().includes(search.toLowerCase()),
  );

/** The items worth to be asked for in advance, the nearest to a step first. @param {MediaSeries[]} series @param {number} step @returns {MediaItem[]} */
export const worthPrefetching = (series, step) =>
  series
    .flatMap(({ items }) => items.filter(({ kind }) => IS_PREFETCHED.has(kind)))
    .filter(({ media_type: type }) => type !== "text/html")
    .sort((one, other) => Math.abs(one.steps_completed - step) - Math.abs(other.steps_completed - step));

/** At most so many items, evenly spaced, the first and the last among them. @template T @param {T[]} items @param {number} most @returns {T[]} */
export const thinned = (items, most) =>
  items.length <= most ? items : Array.from({ length: most }, (_, index) => items[Math.floor((index * (items.length - 1)) / (most - 1))]);
