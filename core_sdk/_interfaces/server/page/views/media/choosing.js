/** Which media are shown: their steps, and the one of each name at a step. Pure. */

import { nameOf } from "../series.js";
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

/** @typedef {{trialId: number, series: MediaSeries[]}} OfTrial */
/** @typedef {{title: string, isOfPictures: boolean, cards: {key: string, title: string, trialId: number, series: MediaSeries}[]}} Section */

/**
 * The gallery in sections: of one trial the media of a group, of several trials the media of one name. A list that was reported
 * as one value, `samples[0]`, `samples[1]` and so on, has a section of its own, in its order.
 * @param {OfTrial[]} chosen
 * @returns {Section[]}
 */
export function sectionsOf(chosen) {
  const isOne = chosen.length === 1;
  /** @type {Map<string, (Section["cards"][number] & {place: number})[]>} */
  const sections = new Map();
  for (const { trialId, series: all } of chosen) {
    for (const series of all) {
      const [name, list, place] = /^(.+)\[(\d+)\]$/.exec(nameOf(series)) ?? [nameOf(series), isOne ? series.group : nameOf(series), ""];
      const title = [!isOne && `Trial ${trialId}`, place ? `[${place}]` : isOne && series.name].filter(Boolean).join(" ");
      sections.set(list, [...(sections.get(list) ?? []), { key: `${trialId} ${name}`, title, trialId, series, place: Number(place || -1) }]);
    }
  }
  return [...sections].map(([title, cards]) => ({
    title,
    isOfPictures: cards.every(({ place, series: { items } }) => place >= 0 && items[0].kind === "image"),
    cards: cards.sort((one, other) => one.place - other.place),
  }));
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
