/** The figures of the machines that a trial ran on, on the time axis of a metric of the trial. */

import { html, useMemo } from "../../preact.js";
import { Chart } from "../../charts/chart.js";
import { seriesColour } from "../../charts/palette.js";
import { ChartTools, useChartSettings } from "../../charts/settings.js";
import { Select } from "../../parts/choice.js";
import { Answered, Empty, Remark } from "../../parts/states.js";
import { address } from "../../state/api.js";
import { useAnswer } from "../../state/answers.js";
import { useSetting } from "../../state/place.js";
import { restartMarks } from "../marks.js";
import { nameOf } from "../series.js";
import { figuresOf } from "./figures.js";
import { sourceName } from "../rank-choice.js";
/** @import { Curve, SystemAnswer, TrialAnswer, TrialRow } from "api" */
/** @import { ChartSettings } from "../../charts/settings.js" */
/** @import { Change } from "../../state/events.js" */
/** @import { MachineChart } from "./figures.js" */

const NUM_BUCKETS = 800;

/** @param {{found: TrialAnswer}} props */
export function System({ found: { trial, series } }) {
  const names = series.map(nameOf);
  const [metric, setMetric] = useSetting("beside", names[0] ?? "none");
  const [node, setNode] = useSetting("node");
  const settings = { ...useChartSettings(), axis: /** @type {const} */ ("time") };
  const follows = (/** @type {Change} */ { trials }) => trials.includes(trial.trial_id);
  const answer = useAnswer(address(["trials", trial.trial_id, "system"], questionOf(settings.zoom, trial.created)), {
    follows,
    about: `system ${trial.trial_id}`,
  });
  const nodes = [...new Set((answer.value?.curves ?? []).flatMap(({ rank }) => rank ?? []))].sort((one, other) =>
    String(one).localeCompare(String(other), undefined, { numeric: true }),
  );
  const tools = html`
    ${names.length > 0 && html`<${Select} label="Beside" values=${[["none", "no metric"], ...names.map((name) => [name, name])]} value=${metric} onChange=${setMetric} />`}
    ${nodes.length > 1 && html`<${Select} label="Node" values=${[["", "all"], ...nodes.map((rank) => [String(rank), nodeName(trial, rank)])]} value=${node} onChange=${setNode} />`}
  `;
  return html`
    <div class="toolbar"><${ChartTools} hasAxis=${false} tools=${tools} /></div>
    <div class="pane">
      <${Answered} answer=${answer} what="figures of the machine">
        ${(/** @type {SystemAnswer} */ { curves, num_left_out: numLeftOut }) => {
          const shown = curves.filter(({ rank, x }) => x.length > 0 && (node === "" || String(rank) === node));
          const whole = /** @type {[number, number]} */ ([0, endOf(trial, curves) - trial.created]);
          if (curves.length === 0 && settings.zoom === null) {
            return html`<${Empty} title="No figures of the machine."><p>A training has some from half a minute on, and more after this line.</p><pre><code>ctx.profiler.on()</code></pre><//>`;
          }
          return html`
            ${numLeftOut > 0 && html`<${Remark}>${numLeftOut} more series are left out: more cannot be told apart.<//>`}
            ${shown.length === 0 && html`<${Empty} title="Nothing was measured in this stretch of time."><button onClick=${() => settings.onZoom(null)}>Show all</button><//>`}
            ${names.includes(metric) && html`<${Metric} trial=${trial} name=${metric} settings=${settings} whole=${whole} />`}
            <${Figures} curves=${shown} trial=${trial} settings=${settings} whole=${whole} />
          `;
        }}
      <//>
    </div>
  `;
}

/** The end of what all charts show: the trial's end, or what was measured last. */
const endOf = (/** @type {TrialRow} */ { ended, created }, /** @type {Curve[]} */ curves) =>
  Math.max(ended ?? created + 1, ...curves.map(({ x }) => x.at(-1) ?? 0));

/** Returns what is asked for: after a zoom also as much before and after it, so that one can go there. */
function questionOf(/** @type {[number, number] | null} */ zoom, /** @type {number} */ origin) {
  if (zoom === null) return { buckets: NUM_BUCKETS };
  const [from, to] = zoom;
  return { buckets: 3 * NUM_BUCKETS, first: origin + from - (to - from), last: origin + to + (to - from) };
}

/** @typedef {ChartSettings & {axis: "time"}} TimeSettings */

/** @param {{curves: Curve[], trial: TrialRow, settings: TimeSettings, whole: [number, number]}} props */
function Figures({ curves, trial, settings, whole }) {
  const charts = useMemo(() => figuresOf(curves), [curves]);
  return html`<div class="charts spaced">${charts.map((chart) => html`<${Figure} key=${chart.title} chart=${chart} origin=${trial.created} settings=${settings} whole=${whole} />`)}</div>`;
}

/** @param {{chart: MachineChart, origin: number, settings: TimeSettings, whole: [number, number]}} props */
function Figure({ chart: { title, format, curves }, origin, settings, whole }) {
  const drawn = useMemo(() => curves.map((curve, index) => ({ ...curve, colour: seriesColour(index), origin })), [curves, origin]);
  return html`<${Chart} title=${title} curves=${drawn} height=${170} format=${format} whole=${whole} ...${settings} />`;
}

/**
 * A metric of the trial over the same time.
 * @param {{trial: TrialRow, name: string, settings: TimeSettings, whole: [number, number]}} props
 */
function Metric({ trial, name, settings, whole }) {
  const answer = useAnswer(address(["trials", trial.trial_id, "metrics"], { names: name, x: "time", buckets: NUM_BUCKETS }), {
    follows: ({ trials }) => trials.includes(trial.trial_id),
  });
  const curves = useMemo(
    () => (answer.value?.curves ?? []).map((series) => ({ label: name, colour: seriesColour(0), series, origin: trial.created })),
    [answer.value, name, trial.created],
  );
  const marks = useMemo(() => restartMarks(answer.value?.resume_points ?? [], curves), [answer.value, curves]);
  return html`
    <section class="chart-section" aria-label="Metric">
      <${Answered} answer=${answer} what=${name}>${() => html`<${Chart} title=${name} curves=${curves} marks=${marks} height=${170} whole=${whole} ...${settings} />`}<//>
    </section>
  `;
}

const nodeName = (/** @type {TrialRow} */ { ranks }, /** @type {number | string} */ rank) => {
  const host = ranks.find((one) => one.rank === rank)?.host;
  return host ? `${host} (${sourceName(rank)})` : sourceName(rank);
};
