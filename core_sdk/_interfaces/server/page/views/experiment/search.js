/** The search's own picture: rungs and brackets, and what became of each trial. */

import { html, useMemo } from "../../preact.js";
import { Chart } from "../../charts/chart.js";
import { useChartSettings } from "../../charts/settings.js";
import { own } from "../../parts/own.js";
import { Answered, Empty, Remark } from "../../parts/states.js";
import { firstOf, formatNumber, formatValue } from "../../parts/text.js";
import { address } from "../../state/api.js";
import { useAnswer } from "../../state/answers.js";
import { linkTo } from "../../state/place.js";
/** @import { SearchAnswer, SearchedTrial } from "api" */
/** @import { Change } from "../../state/events.js" */

/** The colour of what became of a trial. @type {Record<string, string>} */
const COLOURS = { "trained to the end": "--series-3", "goes on": "--series-1", stopped: "--canceled", canceled: "--paused", error: "--error" };

/** @param {{experimentId: number, follows: (change: Change) => boolean}} props */
export function Search({ experimentId, follows }) {
  const answer = useAnswer(address(["experiments", experimentId, "search"]), { follows });
  return html`
    <div class="pane">
      <${Answered} answer=${answer} what="the search">${(/** @type {SearchAnswer} */ picture) => html`<${Picture} picture=${picture} />`}<//>
    </div>
  `;
}

/** @param {{picture: SearchAnswer}} props */
function Picture({ picture }) {
  const { metric, unit, rungs, brackets, trials, best_trial: best, warnings } = picture;
  const settings = useChartSettings();
  const curves = useMemo(() => curvesOf(trials, best), [trials, best]);
  const marks = useMemo(() => rungs.map((x, index) => ({ x, label: `rung ${index + 1}` })), [rungs]);
  const fates = [...new Set(trials.map(({ fate }) => fate))];
  if (trials.length === 0) return html`<${Empty} title="The search has not begun a trial yet." />`;
  return html`
    ${warnings.map((warning) => html`<${Remark}>${warning}<//>`)}
    <ul class="legend" aria-label="What became of the trials">
      <li><i class="swatch" style=${{ background: "var(--series-2)" }}></i>the best${best && html`: <a href=${linkTo(["trials", best])}>trial ${best}</a>`}</li>
      ${fates.map((fate) => html`<li><i class="swatch" style=${{ background: `var(${COLOURS[fate]})` }}></i>${fate}: ${trials.filter((one) => one.fate === fate).length}</li>`)}
    </ul>
    ${curves.length > 0 && html`<${Chart} title=${`${metric} by ${unit}`} curves=${curves} marks=${marks} height=${320} showsValues=${false} ...${settings} axis="steps" />`}
    <div class="cards flat spaced">${brackets.map((bracket, index) => html`<${Bracket} key=${index} index=${index} rungs=${bracket} trials=${trials.filter((one) => one.bracket === index)} unit=${unit} />`)}</div>
    <section class="card spaced"><h2>Trials</h2><${Fates} picture=${picture} /></section>
  `;
}

/**
 * How many trials have reached each rung of a bracket.
 * @param {{index: number, rungs: number[], trials: SearchedTrial[], unit: string}} props
 */
function Bracket({ index, rungs, trials, unit }) {
  const reached = rungs.map((rung) => trials.filter(({ points }) => points.some(([length]) => length >= rung)).length);
  const most = Math.max(1, trials.length);
  return html`
    <section class="card">
      <h2>Bracket ${index + 1} <span class="soft">${trials.length} trials</span></h2>
      <table class="plain-table rungs">
        <thead><tr><th>Rung</th><th class="number">${unit}</th><th class="number">Trials</th><th><span class="unseen">Share</span></th></tr></thead>
        <tbody>
          ${rungs.map((rung, number) => html`<tr><td>${number + 1}</td><td class="number">${formatNumber(rung)}</td><td class="number">${reached[number]}</td><td><span class="bar wide"><i style=${{ width: `${(100 * reached[number]) / most}%` }}></i></span></td></tr>`)}
        </tbody>
      </table>
    </section>
  `;
}

/** Each trial with the hyperparameters in which they differ: constants would leave no room for these. @param {{picture: SearchAnswer}} props */
function Fates({ picture: { trials, best_trial: best, metric, smaller_is_better: smallerIsBetter, num_differing: numDiffering } }) {
  const value = (/** @type {SearchedTrial} */ { best: of }) => (typeof of === "number" ? of * (smallerIsBetter ? 1 : -1) : Infinity);
  const ordered = [...trials].sort((one, other) => value(one) - value(other));
  const names = [...new Set(ordered.flatMap(({ hparams }) => Object.keys(hparams)))];
  return html`
    ${numDiffering > names.length && html`<${Remark}>The first ${firstOf(names.length, numDiffering)} hyperparameters in which the trials differ are shown.<//>`}
    <div class="scroll-x" tabindex="0" role="region" aria-label="Trials of the search">
      <table class="plain-table">
        <thead><tr><th class="number">Trial</th><th class="number">best ${metric}</th>${names.map((name) => html`<th>${name}</th>`)}<th>Became</th><th class="number">Bracket</th><th class="number">Length</th></tr></thead>
        <tbody>
          ${ordered.map(
            (trial) => html`
              <tr class=${trial.trial_id === best ? "differs" : ""}>
                <td class="number"><a href=${linkTo(["trials", trial.trial_id])}>${trial.trial_id}</a></td>
                <td class="number">${formatNumber(trial.best)}</td>
                ${names.map((name) => html`<td class="tabular">${formatValue(own(trial.hparams, name))}</td>`)}
                <td><i class="swatch" style=${{ background: `var(${COLOURS[trial.fate]})` }}></i> ${trial.fate}${trial.reason && html` <span class="soft">${trial.reason}</span>`}</td>
                <td class="number">${trial.bracket + 1}</td>
                <td class="number">${formatNumber(trial.points.at(-1)?.[0])}</td>
              </tr>
            `,
          )}
        </tbody>
      </table>
    </div>
  `;
}

/** A curve for each trial; those that were stopped are faint, and the best one is drawn over all others. */
function curvesOf(/** @type {SearchedTrial[]} */ trials, /** @type {number | null} */ best) {
  return trials
    .filter(({ points }) => points.length > 0)
    .sort((one, other) => Number(one.trial_id === best) - Number(other.trial_id === best))
    .map(({ trial_id: id, fate, points }) => {
      const values = points.map(([, value]) => value);
      return {
        label: `trial ${id}`,
        colour: id === best ? "--series-2" : COLOURS[fate],
        series: { x: points.map(([length]) => length), minimum: values, maximum: values, mean: values },
        isFaint: fate === "stopped" && id !== best,
      };
    });
}
