/** The learning curves of an experiment's best trials, over each other. */

import { html, useMemo, useRef } from "../../preact.js";
import { Chart } from "../../charts/chart.js";
import { seriesColour } from "../../charts/palette.js";
import { ChartSettingsBar, useChartSettings } from "../../charts/settings.js";
import { Select } from "../../parts/choice.js";
import { StateBadge } from "../../parts/state-badge.js";
import { Answered, Empty } from "../../parts/states.js";
import { counted, formatNumber } from "../../parts/text.js";
import { address } from "../../state/api.js";
import { useAnswer } from "../../state/answers.js";
import { linkTo, useSetting } from "../../state/place.js";
import { GroupFields, useGroupNames } from "../groups/choice.js";
import { GroupedCharts, useKnownGroups } from "../groups/grouped-charts.js";
import { RankChoice, useRank } from "../rank-choice.js";
import { useMetricNames } from "./metrics.js";
/** @import { CurvesAnswer, ExperimentAnswer, GroupsAnswer, TrialCurve } from "api" */
/** @import { ChartSettings } from "../../charts/settings.js" */
/** @import { Change } from "../../state/events.js" */

const TOPS = ["1", "10", "20", "50", "100"];

/** @param {{found: ExperimentAnswer, follows: (change: Change) => boolean}} props */
export function LearningCurves({ found: { experiment, metric: searcherMetric }, follows }) {
  const [metric, setMetric] = useSetting("metric");
  const [top, setTop] = useSetting("top", "20");
  const [chosen] = useRank();
  const rank = chosen === "all" ? "" : chosen;
  const settings = useChartSettings();
  const axis = settings.axis === "time" ? "time" : "steps";
  const names = useMetricNames(experiment.experiment_id);
  const trials = { experiment: experiment.experiment_id };
  const known = useKnownGroups(trials, follows);
  const isGrouped = useGroupNames()[0].length > 0;
  const question = { metric, top, x: axis, buckets: 300, rank };
  const answer = useAnswer(isGrouped ? null : address(["experiments", experiment.experiment_id, "curves"], question), { follows });
  const ranks = useRef(/** @type {number[]} */ ([]));
  ranks.current = answer.value?.reporting_ranks ?? ranks.current; // Those of the former answer, until there is another.
  return html`
    <${ChartSettingsBar} hasAxis=${!isGrouped}>
      <${Select} label="Metric" values=${[["", "the searcher's"], ...names.map((name) => [name, name])]} value=${metric} onChange=${setMetric} />
      ${!isGrouped && html`<${Select} label="Best" values=${TOPS.map((number) => [number, counted(Number(number), "trial")])} value=${top} onChange=${setTop} />`}
      <${RankChoice} ranks=${ranks.current} hasAll=${false} />
      <${GroupFields} known=${known.value} />
    <//>
    <div class="pane">
      ${
        isGrouped
          ? html`<${Answered} answer=${known} what="metrics">
              ${(/** @type {GroupsAnswer} */ { metrics }) => html`<${GroupedCharts} trials=${trials} metrics=${shownMetrics(metrics, metric, searcherMetric)} rank=${rank} settings=${settings} height=${380} follows=${follows} />`}
            <//>`
          : html`<${Answered} answer=${answer} what="learning curves">
              ${(/** @type {CurvesAnswer} */ value) =>
                value.curves.length === 0
                  ? html`<${Empty} title="No trial has reported this metric." />`
                  : html`<${Drawn} value=${value} rank=${rank} settings=${{ ...settings, axis }} />`}
            <//>`
      }
    </div>
  `;
}

/** The chosen metric, or else the searcher's, or else the first. */
function shownMetrics(/** @type {string[]} */ metrics, /** @type {string} */ chosen, /** @type {string | null} */ searchers) {
  const shown = metrics.find((name) => name === (chosen || `validation.${searchers}`)) ?? metrics[0];
  return shown === undefined ? [] : [shown];
}

/** @param {{value: CurvesAnswer, rank: string, settings: ChartSettings}} props */
function Drawn({ value: { metric, curves, num_trials: numTrials }, rank, settings }) {
  const drawn = useMemo(
    () =>
      curves.map((series, index) => ({
        label: String(series.trial_id),
        colour: seriesColour(index),
        series,
        origin: settings.axis === "time" ? (series.x.find((x) => x !== null) ?? 0) : 0,
      })),
    [curves, settings.axis],
  );
  return html`
    <${Chart} title=${`${metric}${rank && `, rank ${rank}`}, the best ${curves.length} of ${numTrials} trials`} curves=${drawn} height=${380} ...${settings} />
    <section class="card spaced">
      <table class="plain-table">
        <thead><tr><th class="number">Trial</th><th>State</th><th class="number">Last</th><th class="number">Lowest … highest</th></tr></thead>
        <tbody>
          ${curves.map(
            (curve, index) => html`
              <tr>
                <td class="number"><i class="swatch" style=${{ background: `var(${seriesColour(index)})` }}></i> <a href=${linkTo(["trials", curve.trial_id])}>${curve.trial_id}</a></td>
                <td><${StateBadge} state=${curve.state} /></td>
                <td class="number">${formatNumber(curve.mean.at(-1))}</td>
                <td class="number">${formatRange(curve)}</td>
              </tr>
            `,
          )}
        </tbody>
      </table>
    </section>
  `;
}

/** The lowest and the highest value of a curve; nothing if none is finite. */
function formatRange(/** @type {TrialCurve} */ { minimum, maximum }) {
  const finite = [...minimum, ...maximum].filter((value) => typeof value === "number");
  return finite.length === 0 ? "" : `${formatNumber(Math.min(...finite))} … ${formatNumber(Math.max(...finite))}`;
}
