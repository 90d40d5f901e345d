/** How the hyperparameters of an experiment's trials go with a metric. */

import { html, useMemo, useState } from "../../preact.js";
import { useWidth } from "../../charts/chart.js";
import { HeatMap } from "../../charts/search/heat-map.js";
import { ParallelCoordinates } from "../../charts/search/parallel.js";
import { scaleOf } from "../../charts/search/scale.js";
import { Scatter } from "../../charts/search/scatter.js";
import { Choice, Select } from "../../parts/choice.js";
import { own } from "../../parts/own.js";
import { Answered, Empty, Failure, Remark } from "../../parts/states.js";
import { firstOf, formatNumber, formatValue } from "../../parts/text.js";
import { address } from "../../state/api.js";
import { once, useAnswer } from "../../state/answers.js";
import { useSetting } from "../../state/place.js";
import { withText } from "../../parts/field.js";
import { runsOf } from "../runs/trials.js";
import { metricWords } from "../groups/words.js";
import { namesOfMetrics } from "./metrics.js";
import { Pivot } from "./pivot.js";
/** @import { ExperimentAnswer, ImportanceAnswer, RunsAnswer } from "api" */
/** @import { Drawn, Scale } from "../../charts/search/scale.js" */
/** @import { Change } from "../../state/events.js" */

const MAX_TRIALS = 1000;
const MAX_AXES = 10;
const MAX_HYPERPARAMETERS = 60;

/** @param {{found: ExperimentAnswer, follows: (change: Change) => boolean}} props */
export function Hyperparameters({ found: { experiment, best_by: bestBy, choices }, follows }) {
  const known = useAnswer(address(["columns"], { experiment: experiment.experiment_id }), once);
  const columns = known.value?.columns ?? [];
  const metrics = namesOfMetrics(columns);
  // As everywhere in an experiment, a trial counts by its best value of the searcher's metric.
  const [metric, setMetric] = useSetting("metric", bestBy ?? metrics[0] ?? "");
  const isKnown = metrics.includes(metric.replace(/^(min|max)\./, "")) || metrics.includes(metric);
  const [picture, setPicture] = useSetting("picture", "parallel");
  const differing = columns.filter((column) => column.kind === "hyperparameter" && !column.is_constant);
  const hparams = differing
    .sort((one, other) => other.num_trials - one.num_trials)
    .slice(0, MAX_HYPERPARAMETERS)
    .map(({ name }) => name);
  const query = { experiment: experiment.experiment_id, columns: [...hparams, metric], limit: MAX_TRIALS };
  const answer = useAnswer(metric && isKnown ? address(["runs"], query) : null, { follows });
  return html`
    <div class="toolbar">
      <${Choice} label="Picture" values=${[
        ["parallel", "Parallel coordinates"],
        ["scatter", "Scatter plots"],
        ["matrix", "Scatter matrix"],
        ["heat", "Heat map"],
        ["pivot", "Table"],
        ["importance", "Importance"],
      ]} value=${picture} onChange=${setPicture} />
      <${Select} label="Metric" values=${metrics.flatMap((name) => ["min.", "max.", ""].map((which) => [which + name, metricWords(which + name)]))} value=${metric} onChange=${setMetric} />
    </div>
    <div class="pane">
      ${
        known.value && metrics.length === 0
          ? html`<${Empty} title="No trial has reported a metric." />`
          : known.value && !isKnown
            ? html`<${Empty} title=${`No trial has reported ${metric.replace(/^(min|max)\./, "")}.`} />`
            : html`
            ${known.error && html`<${Failure} error=${known.error} onRetry=${known.reload} />`}
            ${differing.length > hparams.length && html`<${Remark}>Of the ${differing.length} hyperparameters in which the trials differ, the ${hparams.length} are drawn that most trials have.<//>`}
            <${Answered} answer=${answer} what="trials">
              ${(/** @type {RunsAnswer} */ value) => html`
                ${value.num_found > MAX_TRIALS && html`<${Remark}>The newest ${MAX_TRIALS} of ${value.num_found} trials are drawn.<//>`}
                ${
                  picture === "importance"
                    ? html`<${Importance} experimentId=${experiment.experiment_id} metric=${metric} follows=${follows} />`
                    : html`<${Pictures} value=${value} metric=${metric} picture=${picture} choices=${choices} />`
                }
              `}
            <//>
          `
      }
    </div>
  `;
}

/** @param {{value: RunsAnswer, metric: string, picture: string, choices: ExperimentAnswer["choices"]}} props */
function Pictures({ value, metric, picture, choices }) {
  const [box, width] = useWidth();
  const { trials, scales, metricScale } = useMemo(() => readTrials(value, metric, choices), [value, metric, choices]);
  let drawn = null;
  if (trials.length === 0) drawn = html`<${Empty} title="No trial has both this metric and hyperparameters." />`;
  else if (scales.length === 0) drawn = html`<${Empty} title="The trials do not differ in their hyperparameters." />`;
  else if (picture === "parallel")
    drawn = html`<${Parallel} scales=${[...scales.slice(0, MAX_AXES), metricScale]} trials=${trials} width=${width - 24} />`;
  else if (picture === "scatter")
    drawn = html`<div class="small-charts">${scales.map((scale) => html`<${Scatter} key=${scale.name} x=${scale} y=${metricScale} metric=${metricScale} trials=${trials} />`)}</div>`;
  else if (picture === "matrix") drawn = html`<${Matrix} scales=${scales.slice(0, 6)} metric=${metricScale} trials=${trials} />`;
  else if (picture === "pivot") drawn = html`<${Pivot} scales=${scales} metric=${metricScale} trials=${trials} />`;
  else drawn = html`<${Heat} scales=${scales} metric=${metricScale} trials=${trials} width=${Math.min(900, width - 24)} />`;
  return html`<div ref=${box}>${width > 0 && drawn}</div>`;
}

/** Parallel coordinates, whose ranges can also be written. @param {{scales: Scale[], trials: Drawn[], width: number}} props */
function Parallel({ scales, trials, width }) {
  const [ranges, setRanges] = useState(/** @type {import("../../charts/search/parallel.js").Ranges} */ ({}));
  const [axis, setAxis] = useState(scales[scales.length - 1].name);
  const [low, high] = own(ranges, axis) ?? [0, 1];
  const called = scales.find(({ name }) => name === axis)?.title;
  const change = (/** @type {[number, number]} */ range) => setRanges({ ...ranges, [axis]: range });
  const after = html`
    <div class="row ranges">
      <${Select} label="Range of" values=${scales.map(({ name, title }) => [name, title])} value=${axis} onChange=${setAxis} />
      <label class="select"><span>from</span><input type="range" min="0" max="1" step="0.01" aria-label=${`Lower end of ${called}`} value=${low} onInput=${withText((text) => change([Math.min(Number(text), high), high]))} /></label>
      <label class="select"><span>to</span><input type="range" min="0" max="1" step="0.01" aria-label=${`Upper end of ${called}`} value=${high} onInput=${withText((text) => change([low, Math.max(Number(text), low)]))} /></label>
      <button class="small" disabled=${Object.keys(ranges).length === 0} onClick=${() => setRanges({})}>All trials</button>
      <span class="soft">Drag on an axis, or use the sliders.</span>
    </div>
  `;
  return html`<${ParallelCoordinates} scales=${scales} trials=${trials} width=${width} ranges=${ranges} onRanges=${setRanges} after=${after} />`;
}

/** @param {{scales: Scale[], metric: Scale, trials: Drawn[]}} props */
const Matrix = ({ scales, metric, trials }) => html`
  <div class="small-charts">
    ${scales.flatMap((x, index) => scales.slice(index + 1).map((y) => html`<${Scatter} key=${`${x.name} ${y.name}`} x=${x} y=${y} metric=${metric} trials=${trials} />`))}
    ${scales.map((x) => html`<${Scatter} key=${`metric ${x.name}`} x=${x} y=${metric} metric=${metric} trials=${trials} />`)}
  </div>
`;

/** @param {{scales: Scale[], metric: Scale, trials: Drawn[], width: number}} props */
function Heat({ scales, metric, trials, width }) {
  const [x, setX] = useSetting("hx", scales[0].name);
  const [y, setY] = useSetting("hy", (scales[1] ?? scales[0]).name);
  const choices = scales.map(({ name }) => [name, name]);
  const scale = (/** @type {string} */ name) => scales.find((one) => one.name === name) ?? scales[0];
  return html`
    <div class="row"><${Select} label="Across" values=${choices} value=${x} onChange=${setX} /><${Select} label="Up" values=${choices} value=${y} onChange=${setY} /></div>
    <${HeatMap} x=${scale(x)} y=${scale(y)} metric=${metric} trials=${trials} width=${width} />
  `;
}

/** @param {{experimentId: number, metric: string, follows: (change: Change) => boolean}} props */
function Importance({ experimentId, metric, follows }) {
  const answer = useAnswer(address(["experiments", experimentId, "importance"], { metric }), { follows });
  return html`
    <${Answered} answer=${answer} what="importance">
      ${(/** @type {ImportanceAnswer} */ { importances, num_importances: num, num_trials: numTrials }) =>
        importances.length === 0
          ? html`<${Empty} title="There are too few trials to tell.">It takes four or more with the metric, and hyperparameters that differ.<//>`
          : html`
              <section class="card">
                <h2>How much of the differences in the ${metricWords(metric)} each hyperparameter explains by itself</h2>
                <table class="plain-table">
                  <thead><tr><th>Hyperparameter</th><th>Share</th><th class="number"><span class="unseen">Share in percent</span></th><th class="number">Correlation</th><th class="number">Values</th></tr></thead>
                  <tbody>
                    ${importances.map((one) => html`<tr><td>${one.name}</td><td><span class="bar wide"><i style=${{ width: `${100 * one.share}%` }}></i></span></td><td class="number">${Math.round(100 * one.share)} %</td><td class="number">${one.correlation === null ? html`<span class="soft">–</span>` : formatNumber(one.correlation, 2)}</td><td class="number">${one.num_values}</td></tr>`)}
                  </tbody>
                </table>
                <p class="soft">${num > importances.length && `The first ${firstOf(importances.length, num)} hyperparameters. `}Of ${numTrials} trials, by the ranks of their values. What only matters together with another hyperparameter does not show here.</p>
              </section>
            `}
    <//>
  `;
}

/** Trials with the metric, and the scales of the hyperparameters in which they differ. */
function readTrials(/** @type {RunsAnswer} */ answer, /** @type {string} */ metric, /** @type {ExperimentAnswer["choices"]} */ choices) {
  const trials = runsOf(answer)
    .map(({ key, values }) => ({ id: Number(key), values }))
    .filter(({ values }) => typeof values[metric] === "number");
  const valuesOf = (/** @type {string} */ name) => trials.map(({ values }) => values[name]);
  const differing = answer.columns.filter((name) => name !== metric && new Set(valuesOf(name).map(formatValue)).size > 1);
  return {
    trials,
    scales: differing.map((name) => scaleOf(name, valuesOf(name), null, own(choices, name) ?? own(choices, name.replace(/^hparams\./, "")))),
    metricScale: { ...scaleOf(metric, valuesOf(metric)), title: metricWords(metric) },
  };
}
