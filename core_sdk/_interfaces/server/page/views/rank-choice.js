/** Which rank's reports charts show: a setting that the URL holds, and that all views with charts share. */

import { html } from "../preact.js";
import { Select } from "../parts/choice.js";
import { useSetting } from "../state/place.js";

/** The rank or the writer, "all", or nothing for the lowest that has reported each metric. */
export const useRank = () => useSetting("reports");

/** Whose reports they are, in words: a rank's, which is a number, or a writer's. */
export const sourceName = (/** @type {number | string | null} */ source) =>
  typeof source === "string" && !/^\d+$/.test(source) ? source : `rank ${source}`;

/** @param {{ranks: (number | string)[], lowest?: string, hasAll?: boolean}} props The ranks that have reported; of one there is no choice. */
export function RankChoice({ ranks, lowest = "lowest", hasAll = true }) {
  const [rank, setRank] = useRank();
  if (ranks.length < 2) return null;
  const values = [["", lowest], ...ranks.map((one) => [String(one), String(one)]), ...(hasAll ? [["all", "all"]] : [])];
  return html`<${Select} label="Rank" values=${values} value=${rank} onChange=${setRank} />`;
}

/** The title of a chart, with the rank if all curves are of one: a chart of one curve does not show its label. */
export function titleWithRank(/** @type {string} */ title, /** @type {{series: {rank: number | string | null}}[]} */ curves) {
  const ranks = new Set(curves.map(({ series }) => series.rank));
  const [rank] = ranks;
  return ranks.size === 1 && rank != null ? `${title}, ${sourceName(rank)}` : title;
}
