/** The charts of a trial's metrics. */

import { html, useMemo, useRef, useState } from "../../preact.js";
import { Chart } from "../../charts/chart.js";
import { seriesColour } from "../../charts/palette.js";
import { ChartSettingsBar, useChartSettings } from "../../charts/settings.js";
import { numPointsBefore } from "../../charts/smoothing.js";
import { Choice, Switch } from "../../parts/choice.js";
import { Answered, Empty } from "../../parts/states.js";
import { counted } from "../../parts/text.js";
import { address } from "../../state/api.js";
import { useAnswer } from "../../state/answers.js";
import { useSetting } from "../../state/place.js";
import { alertMarks, placeAt } from "./alerts.js";
import { RankChoice, titleWithRank, useRank } from "../rank-choice.js";
import { MAX_CURVES, nameOf } from "../series.js";
import { withText } from "../../parts/field.js";
/** @import { Named } from "../series.js" */
/** @import { AlertRow, Curve, MetricsAnswer, TrialAnswer, TrialRow } from "api" */
/** @import { ChartSettings } from "../../charts/settings.js" */

const NUM_CHARTS = 24;
const NUM_BUCKETS = 800;

/** @typedef {{title: string, series: Named[]}} ChartOfMetric The metrics of a chart. */

/** @param {{found: TrialAnswer}} props */
export function TrialCharts({ found: { trial, series, alerts, reporting_ranks: ranks } }) {
  const [search, setSearch] = useSetting("search");
  const [order, setOrder] = useSetting("by", "group");
  const [faint, setFaint] = useSetting("superseded", "1");
  const [rank] = useRank();
  const sections = useMemo(() => sectionsOf(series, order, search), [series.map(nameOf).join("\n"), order, search]);
  if (series.length === 0) {
    return html`<${Empty} title="Nothing was reported yet.">What the trial reports appears here while it runs.<//>`;
  }
  return html`
    <${ChartSettingsBar}>
      <${Choice} label="Charts" values=${[
        ["group", "By group"],
        ["name", "By name"],
      ]} value=${order} onChange=${setOrder} />
      ${trial.num_attempts > 1 && html`<${Switch} label="Superseded" title="Show what later attempts have replaced." isOn=${faint === "1"} onChange=${(/** @type {boolean} */ isOn) => setFaint(isOn ? "1" : "0")} />`}
      <${RankChoice} ranks=${ranks} lowest=${`lowest (${ranks[0]})`} />
      <input type="search" class="search" placeholder="Find a metric  /" aria-label="Find a metric" value=${search} onInput=${withText(setSearch)} />
    <//>
    <div class="pane">
      ${sections.length === 0 && html`<${Empty} title="No metric has such a name." />`}
      ${sections.map(({ title, charts }) => html`<${Section} key=${title} title=${title} charts=${charts} trial=${trial} alerts=${alerts} numRanks=${rank === "all" ? ranks.length : 1} showsSuperseded=${faint === "1"} />`)}
    </div>
  `;
}

/**
 * The charts of one group, or those of metrics that several groups have.
 * @param {{title: string, charts: ChartOfMetric[], trial: TrialRow, alerts: AlertRow[], numRanks: number, showsSuperseded: boolean}} props
 */
function Section({ title, charts, trial, alerts, numRanks, showsSuperseded }) {
  const [numShown, setNumShown] = useState(1);
  const parts = useMemo(() => partsOf(charts, numRanks), [charts, numRanks]);
  const next = parts[numShown];
  return html`
    <section class="chart-section" aria-label=${title}>
      <h2>${title} <span class="soft">${charts.length}</span></h2>
      ${parts.slice(0, numShown).map((part, index) => html`<${Part} key=${index} title=${title} charts=${part} trial=${trial} alerts=${alerts} showsSuperseded=${showsSuperseded} />`)}
      ${next && html`<button class="more" onClick=${() => setNumShown(numShown + 1)}>Show ${counted(next.length, "more chart")}</button>`}
    </section>
  `;
}

/**
 * The charts in parts of at most 24, each of which has no more curves than an answer.
 * @param {ChartOfMetric[]} charts
 * @param {number} numRanks How many ranks have a curve in each.
 */
export function partsOf(charts, numRanks) {
  /** @type {ChartOfMetric[][]} */
  const parts = [];
  let numCurves = Infinity;
  for (const chart of charts) {
    const num = chart.series.length * numRanks;
    if (numCurves + num > MAX_CURVES || parts[parts.length - 1].length === NUM_CHARTS) {
      parts.push([]);
      numCurves = 0;
    }
    parts[parts.length - 1].push(chart);
    numCurves += num;
  }
  return parts;
}

/** Charts that are asked for together. @param {{title: string, charts: ChartOfMetric[], trial: TrialRow, alerts: AlertRow[], showsSuperseded: boolean}} props */
function Part({ title, charts, trial, alerts, showsSuperseded }) {
  const settings = useChartSettings();
  const [rank] = useRank();
  const names = charts.flatMap(({ series }) => series.map(nameOf));
  const distance = useRef(1);
  const zoom = settings.axis === "steps" ? settings.zoom : null;
  const before = zoom === null ? 0 : stepsBefore(zoom, settings.smoothing, distance.current);
  const answer = useAnswer(
    address(["trials", trial.trial_id, "metrics"], {
      names,
      x: settings.axis,
      buckets: zoom === null ? NUM_BUCKETS : Math.round(NUM_BUCKETS * (1 + before / (zoom[1] - zoom[0]))),
      superseded: showsSuperseded || null,
      rank: rank || null,
      first: zoom === null ? null : Math.floor(zoom[0] - before),
      last: zoom === null ? null : Math.ceil(zoom[1]),
    }),
    // A zoom asks for a part of the same curves, in finer buckets.
    {
      follows: ({ trials }) => trials.includes(trial.trial_id),
      about: JSON.stringify([trial.trial_id, names, settings.axis, showsSuperseded, rank]),
    },
  );
  distance.current = distanceOf(answer.value?.curves ?? []) ?? distance.current;
  return html`
    <${Answered} answer=${answer} what=${`charts of ${title}`}>
      ${(/** @type {MetricsAnswer} */ value) => html`
        <div class="charts">
          ${charts
            .filter((chart) => rank === "" || hasCurve(value, chart))
            .map(
              (chart) =>
                html`<${MetricChart} key=${chart.title} chart=${chart} answer=${value} trial=${trial} alerts=${alerts} settings=${settings} />`,
            )}
        </div>
      `}
    <//>
  `;
}

const MOST_BEFORE = 4;

/** How much before a zoom is asked for too, so that what is smoothed in it does not begin anew; in widths of it, at most 4. */
const stepsBefore = (/** @type {[number, number]} */ [from, to], /** @type {number} */ smoothing, /** @type {number} */ distance) =>
  Math.min(MOST_BEFORE * (to - from), numPointsBefore(smoothing) * distance);

/** The greatest distance between the points of a curve, in steps; a power of two, so that new points rarely change it. */
function distanceOf(/** @type {Curve[]} */ curves) {
  const distances = curves.map(({ first_steps: first, last_steps: last, count }) => {
    const numPoints = count.reduce((sum, one) => sum + one, 0);
    return numPoints > 1 ? (last[last.length - 1] - first[0]) / (numPoints - 1) : 0;
  });
  const greatest = Math.max(0, ...distances);
  return greatest > 0 ? 2 ** Math.ceil(Math.log2(greatest)) : null;
}

/** @param {{chart: ChartOfMetric, answer: MetricsAnswer, trial: TrialRow, alerts: AlertRow[], settings: ChartSettings}} props */
function MetricChart({ chart: { title, series }, answer, trial, alerts, settings }) {
  const origin = settings.axis === "time" ? trial.created : 0;
  const curves = useMemo(
    () =>
      series.flatMap(({ group, name }, index) => {
        const isOfSeries = (/** @type {Curve} */ curve) => curve.group === group && curve.name === name;
        const ranks = [...new Set([...answer.curves, ...answer.superseded].filter(isOfSeries).map(({ rank }) => rank))];
        const curveOf = (/** @type {Curve} */ found, /** @type {boolean} */ isFaint) => ({
          label: [group, found.rank !== null && `rank ${found.rank}`, isFaint && `attempt ${found.attempt}`].filter(Boolean).join(", "),
          colour: seriesColour(index + series.length * ranks.indexOf(found.rank)),
          series: found,
          origin,
          isFaint,
        });
        return [
          ...answer.superseded.filter(isOfSeries).map((found) => curveOf(found, true)),
          ...answer.curves.filter(isOfSeries).map((found) => curveOf(found, false)),
        ];
      }),
    [answer, series, origin],
  );
  const marks = useMemo(
    () => [...marksOf(answer, curves, origin), ...alertMarks(alerts, curves, settings.axis, origin)],
    [answer, alerts, curves, origin],
  );
  // What is beyond the zoom was not asked for.
  const whole = settings.zoom !== null && settings.axis === "steps" ? [settings.isLogX ? 1 : 0, trial.steps_completed] : null;
  return html`<${Chart} title=${titleWithRank(title, curves)} curves=${curves} marks=${marks} whole=${whole} ...${settings} />`;
}

/** Whether an answer has a curve for a chart: a rank need not have reported each metric. */
const hasCurve = (/** @type {MetricsAnswer} */ { curves, superseded }, /** @type {ChartOfMetric} */ { series }) =>
  [...curves, ...superseded].some((curve) => series.some((one) => nameOf(one) === nameOf(curve)));

/**
 * Where later attempts went on, on the axis of the chart.
 * @param {MetricsAnswer} answer
 * @param {{series: Curve, isFaint?: boolean}[]} curves
 * @param {number} origin
 */
export function marksOf({ resume_points: points }, curves, origin) {
  const series = curves.find(({ isFaint }) => !isFaint)?.series;
  if (series === undefined) return [];
  return points.flatMap((point) => {
    const x = placeAt(series, point);
    return x === null ? [] : [{ x: x - origin, label: "restart" }];
  });
}

/** The charts in sections: a section for each group, or one in which groups share the charts of their common metrics. */
function sectionsOf(/** @type {Named[]} */ series, /** @type {string} */ order, /** @type {string} */ search) {
  const found = series.filter((one) => nameOf(one).toLowerCase().includes(search.toLowerCase()));
  const groups = order === "group" ? [...new Set(found.map(({ group }) => group))] : [""];
  return groups
    .map((group) => {
      const members = found.filter((one) => group === "" || one.group === group);
      const names = [...new Set(members.map(({ name }) => name))].sort((one, other) => Number(isCount(one)) - Number(isCount(other)));
      const charts = names.map((name) => ({ title: group ? `${group} ${name}` : name, series: members.filter((one) => one.name === name) }));
      return { title: group || "Metrics", charts };
    })
    .filter(({ charts }) => charts.length > 0);
}

/** A Trainer reports them with each validation; their charts say little. */
const isCount = (/** @type {string} */ name) => ["batches", "epochs", "epoch"].includes(name);
