/** The learning curves of an experiment's best trials, over each other. */

import { html, useMemo } from "../../preact.js";
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
import { useMetricNames } from "./metrics.js";

const TOPS = ["1", "10", "20", "50", "100"];

/** @param {{found: any, follows: (change: any) => boolean}} props */
export function LearningCurves({ found: { experiment }, follows }) {
  const [metric, setMetric] = useSetting("metric");
  const [top, setTop] = useSetting("top", "20");
  const settings = useChartSettings();
  const axis = settings.axis === "time" ? "time" : "steps";
  const names = useMetricNames(experiment.experiment_id);
  const answer = useAnswer(address(["experiments", experiment.experiment_id, "curves"], { metric, top, x: axis, buckets: 300 }), { follows });
  return html`
    <${ChartSettingsBar}>
      <${Select} label="Metric" values=${[["", "the searcher's"], ...names.map((name) => [name, name])]} value=${metric} onChange=${setMetric} />
      <${Select} label="Best" values=${TOPS.map((number) => [number, counted(Number(number), "trial")])} value=${top} onChange=${setTop} />
    <//>
    <div class="pane">
      <${Answered} answer=${answer} what="learning curves">
        ${(/** @type {any} */ value) =>
          value.curves.length === 0
            ? html`<${Empty} title="No trial has reported this metric." />`
            : html`<${Drawn} value=${value} settings=${{ ...settings, axis }} />`}
      <//>
    </div>
  `;
}

function Drawn({ value: { metric, curves, num_trials: numTrials }, settings }) {
  const drawn = useMemo(
    () =>
      curves.map((/** @type {any} */ series, /** @type {number} */ index) => ({
        label: String(series.trial_id),
        colour: seriesColour(index),
        series,
        origin: settings.axis === "time" ? (series.x.find((/** @type {any} */ x) => x !== null) ?? 0) : 0,
      })),
    [curves, settings.axis],
  );
  return html`
    <${Chart} title=${`${metric}, the best ${curves.length} of ${numTrials} trials`} curves=${drawn} height=${380} ...${settings} />
    <section class="card spaced">
      <table class="plain-table">
        <thead><tr><th class="number">Trial</th><th>State</th><th class="number">Last</th><th class="number">Lowest … highest</th></tr></thead>
        <tbody>
          ${curves.map(
            (/** @type {any} */ curve, /** @type {number} */ index) => html`
              <tr>
                <td class="number"><i class="swatch" style=${{ background: `var(${seriesColour(index)})` }}></i> <a href=${linkTo(["trials", curve.trial_id])}>${curve.trial_id}</a></td>
                <td><${StateBadge} state=${curve.state} /></td>
                <td class="number">${formatNumber(curve.mean.at(-1))}</td>
                <td class="number">${formatNumber(Math.min(...curve.minimum.filter(Number.isFinite)))} … ${formatNumber(Math.max(...curve.maximum.filter(Number.isFinite)))}</td>
              </tr>
            `,
          )}
        </tbody>
      </table>
    </section>
  `;
}
