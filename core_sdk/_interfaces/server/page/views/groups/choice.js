/** How trials are grouped: settings that the URL holds, and their fields. */

import { html } from "../../preact.js";
import { Select } from "../../parts/choice.js";
import { useListSetting, useSetting } from "../../state/place.js";
import { rankingWords } from "./words.js";

const CENTRES = [
  ["mean", "mean"],
  ["median", "median"],
];
const DRAWN = [
  ["", "curves"],
  ["1", "bars of the last values"],
];
const BANDS = [
  ["std", "standard deviation"],
  ["sem", "standard error"],
  ["range", "minimum to maximum"],
  ["none", "none"],
];

/** The names by which trials are grouped. */
export const useGroupNames = () => useListSetting("group");

/** The settings of the curves of groups, by the names that the server gives them. */
export function useGroupSettings() {
  const [centre] = useSetting("centre", "mean");
  const [band] = useSetting("band", "std");
  const [best] = useSetting("best");
  return { centre, band, best };
}

/** The setting that draws groups as bars of their last values. */
export const useFinals = () => useSetting("finals");

/** The choice that stands for several names: the hyperparameters that vary within an experiment, and the experiment; no name of a column is empty behind a dot. */
const ALL_BUT_SEED = "hparams.";

/**
 * The names of groups: a list of the others, and a button for each that is chosen.
 * @param {{names: [string, string][], varied: string[], numExperiments: number}} props `varied` are the hyperparameters that
 *   differ between trials of one experiment.
 */
export function GroupChoice({ names, varied, numExperiments }) {
  const [chosen, setChosen] = useGroupNames();
  const rest = names.filter(([name]) => !chosen.includes(name));
  const settings = varied.filter((name) => !/(^|[._])seed$/i.test(name));
  const others = [...(numExperiments > 1 ? ["experiment"] : []), ...settings];
  const hasSeed = others.length > 0 && settings.length < varied.length;
  const choose = (/** @type {string} */ name) => name && setChosen(name === ALL_BUT_SEED ? others : [...chosen, name]);
  return html`
    <${Select} label="Group by" values=${[["", chosen.length ? "and …" : "nothing"], ...(hasSeed ? [[ALL_BUT_SEED, "all but seed"]] : []), ...rest]} value="" onChange=${choose} />
    ${chosen.map((name) => html`<button key=${name} class="small" aria-label=${`Do not group by ${name}`} onClick=${() => setChosen(chosen.filter((one) => one !== name))}>${name} ×</button>`)}
  `;
}

/** The fields that choose how curves of groups are made. @param {{metrics: string[], bestBy: string | null}} props */
export function GroupFields({ metrics, bestBy }) {
  const [chosen] = useGroupNames();
  const [centre, setCentre] = useSetting("centre", "mean");
  const [band, setBand] = useSetting("band", "std");
  const [best, setBest] = useSetting("best");
  const [finals, setFinals] = useFinals();
  const rankings = metrics.flatMap((metric) => [`min.${metric}`, `max.${metric}`]);
  if (chosen.length === 0) return null;
  return html`
    <${Select} label="Draw" values=${DRAWN} value=${finals} onChange=${setFinals} />
    <${Select} label="Centre" values=${CENTRES} value=${centre} onChange=${setCentre} />
    <${Select} label="Band" values=${BANDS} value=${band} onChange=${setBand} />
    <${Select} label="Best" values=${[["", rankingWords(bestBy)], ...rankings.map((name) => [name, rankingWords(name)])]} value=${best} onChange=${setBest} />
  `;
}
