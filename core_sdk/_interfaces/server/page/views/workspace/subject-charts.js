/** One chart of a view: the curves of trials, or of groups of trials. */

import { html, useMemo } from "../../preact.js";
import { Chart } from "../../charts/chart.js";
import { dashWithin } from "../../charts/palette.js";
import { finerIn } from "../../charts/settings.js";
import { Answered } from "../../parts/states.js";
import { counted } from "../../parts/text.js";
import { address } from "../../state/api.js";
import { useAnswer } from "../../state/answers.js";
import { useFinals, useGroupNames, useGroupSettings } from "../groups/choice.js";
import { labelsOf, noteOf } from "../groups/words.js";
import { sourceName, titleWithRank, useRank } from "../rank-choice.js";
import { useBaselineCurves } from "./baseline.js";
import { FacetedChart, useFacet } from "./facets.js";
import { FinalsChart } from "./finals.js";
import { curvesOf, marksOf } from "./trial-curves.js";
/** @import { ComparedMetricsAnswer, GroupsAnswer } from "api" */
/** @import { Frame } from "./panel-grid.js" */
/** @import { Look, Subject } from "./subjects.js" */

const NUM_BUCKETS = 400;
const NUM_BUCKETS_ALONE = 800;
const NUM_POINTS = 300;

/** @typedef {{subjects: Subject[], looks: Map<string, Look>, metrics: string[], frame: Frame}} Props */

const followsOf =
  (/** @type {Subject[]} */ subjects) =>
  (/** @type {import("../../state/events.js").Change} */ { trials }) =>
    subjects.some(({ ids }) => ids.some((id) => trials.includes(id)));

/** @param {Omit<Props, "looks"> & {looks: Map<string, Look> | null, showsSuperseded?: boolean}} props Without looks it is a chart of one trial. */
export function TrialsChart({ subjects, looks, metrics, frame, showsSuperseded = false }) {
  const [rank] = useRank();
  const [facet] = useFacet();
  const { axis, title, zoom, formula } = frame;
  const buckets = subjects.length === 1 ? NUM_BUCKETS_ALONE : NUM_BUCKETS;
  const trials = subjects.map(({ ids: [id] }) => id);
  const question = { trials, names: metrics, formula, x: axis, buckets, superseded: showsSuperseded || null, rank: rank || null };
  const answer = useAnswer(address(["comparison", "metrics"], { ...question, ...finerIn(zoom) }), {
    follows: followsOf(subjects),
    // A zoom asks for the same curves, with finer buckets in a part of them.
    about: JSON.stringify(question),
  });
  const answers = answer.value?.trials ?? [];
  const baseline = useBaselineCurves(subjects, metrics, frame);
  const [curves, marks] = useMemo(() => {
    const drawn = answers.map((found, index) => {
      const subject = subjects[index];
      const options = { look: looks?.get(subject.key) ?? null, names: formula ? [formula] : metrics, axis, hasAllRanks: rank === "all" };
      const ofTrial = curvesOf(subject, found, options);
      return { curves: ofTrial, marks: marksOf(subject, found, ofTrial, options) };
    });
    return [[...drawn.flatMap((one) => one.curves), ...baseline.curves], drawn.flatMap((one) => one.marks)];
  }, [answer.value, subjects, looks, metrics.join("\n"), formula, axis, rank, baseline.curves]);
  const numLeftOut = Math.max(0, ...answers.map(({ num_left_out: num }) => num));
  const notes = [
    numLeftOut > 0 && `${counted(numLeftOut, "metric")} left out: there are too many curves.`,
    formula &&
      curves.some(({ series }) => series.count?.some((count) => count > 1)) &&
      "A point that stands for several reports is computed from their means.",
    formula && answer.value && curves.length === 0 && `No step has all metrics of ${formula}.`,
    baseline.problem,
  ];
  return html`
    <${Answered} answer=${answer} what=${`curves of ${title}`}>
      ${(/** @type {ComparedMetricsAnswer} */ _) => html`
        <${FacetedChart}
          subjects=${subjects}
          facet=${looks ? facet : ""}
          frame=${frame}
          curves=${curves}
          marks=${marks}
          title=${titleWithRank(title, curves)}
          note=${notes.filter(Boolean).join(" ")}
        />
      `}
    <//>
  `;
}

/** Curves of groups, or bars of their last values. @param {Props} props */
export const GroupsChart = (props) =>
  props.frame.formula
    ? html`<${Chart} ...${props.frame} curves=${[]} note="A formula has no curve of a group: look at single trials." />`
    : useFinals()[0]
      ? html`<${FinalsChart} ...${props} />`
      : html`<${GroupedCurves} ...${props} />`;

/** @param {Props} props */
function GroupedCurves({ subjects, looks, metrics, frame }) {
  const [by] = useGroupNames();
  const [facet] = useFacet();
  const [chosen] = useRank();
  const rank = chosen === "all" ? "" : chosen;
  const { axis, zoom } = frame;
  const trials = subjects.flatMap(({ ids }) => ids);
  const question = { trials, ...useGroupSettings(), by, metrics, x: axis, rank, points: NUM_POINTS };
  const answer = useAnswer(address(["groups"], { ...question, ...finerIn(zoom) }), {
    follows: followsOf(subjects),
    about: JSON.stringify(question),
  });
  const baseline = useBaselineCurves(subjects, metrics, frame);
  const [curves, note] = useMemo(() => {
    const { groups = [], charts = [] } = answer.value ?? {};
    const labels = labelsOf(by, groups);
    const keys = groups.map((group) => subjects.find(({ ids }) => ids.includes(group.trials[0]))?.key ?? "");
    const drawn = charts.flatMap((chart) =>
      chart.curves.map(({ group, x, centre, low, high, num_trials: numTrials, count }) => ({
        key: keys[group],
        label: metrics.length > 1 ? `${labels[group]}, ${chart.metric}` : labels[group],
        colour: looks.get(keys[group])?.colour ?? "",
        dash: metrics.length > 1 ? dashWithin(metrics.indexOf(chart.metric)) : looks.get(keys[group])?.dash,
        isBand: true,
        series: { x, minimum: low, maximum: high, mean: centre, numTrials, count },
      })),
    );
    return [[...drawn, ...baseline.curves], charts.map((chart) => noteOf(chart, labels, axis)).join(" ")];
  }, [answer.value, subjects, looks, metrics.join("\n"), axis, baseline.curves]);
  const isSplit = by.includes(facet);
  const notes = [note, baseline.problem, facet && !isSplit && `Group by ${facet} too, and the charts are split by it.`];
  const chart = html`
    <${FacetedChart}
      subjects=${subjects}
      facet=${isSplit ? facet : ""}
      frame=${frame}
      curves=${curves}
      note=${notes.filter(Boolean).join(" ")}
      title=${rank ? `${frame.title}, ${sourceName(rank)}` : frame.title}
    />
  `;
  // No trial of the groups has the metric.
  if (answer.error?.kind === "unknown_name") return chart;
  return html`<${Answered} answer=${answer} what=${`curves of ${frame.title}`}>${(/** @type {GroupsAnswer} */ _) => chart}<//>`;
}
