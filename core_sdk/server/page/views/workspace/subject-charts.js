/** One chart of the workspace: the curves of trials, or those of groups of trials. */

import { html, useMemo } from "../../preact.js";
import { Chart } from "../../charts/chart.js";
import { dashWithin } from "../../charts/palette.js";
import { Answered } from "../../parts/states.js";
import { address } from "../../state/api.js";
import { useAnswer } from "../../state/answers.js";
import { useGroupNames, useGroupSettings } from "../groups/choice.js";
import { labelsOf, noteOf } from "../groups/words.js";
import { titleWithRank, useRank } from "../rank-choice.js";
import { nameOf } from "../series.js";
/** @import { ComparedMetricsAnswer, GroupsAnswer } from "api" */
/** @import { Frame } from "./panel-grid.js" */
/** @import { Look, Subject } from "./subjects.js" */

const NUM_BUCKETS = 400;
const NUM_POINTS = 300;

/** @typedef {{subjects: Subject[], looks: Map<string, Look>, metrics: string[], frame: Frame}} Props */

const followsOf =
  (/** @type {Subject[]} */ subjects) =>
  (/** @type {import("../../state/events.js").Change} */ { trials }) =>
    subjects.some(({ ids }) => ids.some((id) => trials.includes(id)));

/** @param {Props} props */
export function TrialsChart({ subjects, looks, metrics, frame }) {
  const [rank] = useRank();
  const { axis, title } = frame;
  const trials = subjects.map(({ ids: [id] }) => id);
  const question = { trials, names: metrics, x: axis, buckets: NUM_BUCKETS, rank: rank || null };
  const answer = useAnswer(address(["comparison", "metrics"], question), { follows: followsOf(subjects) });
  const curves = useMemo(
    () =>
      subjects.flatMap(({ key, label, values }, index) => {
        const { colour, dash } = /** @type {Look} */ (looks.get(key));
        return (answer.value?.trials[index]?.curves ?? []).map((series) => ({
          key,
          label: [label, metrics.length > 1 && nameOf(series), rank === "all" && `rank ${series.rank}`].filter(Boolean).join(", "),
          colour,
          // Several metrics of a trial share its colour, and its curves differ in their dash.
          dash: metrics.length > 1 ? dashWithin(metrics.indexOf(nameOf(series))) : dash,
          series,
          origin: axis === "time" ? values.started : 0,
        }));
      }),
    [answer.value, subjects, looks, metrics.join("\n"), axis, rank],
  );
  return html`
    <${Answered} answer=${answer} what=${`curves of ${title}`}>
      ${(/** @type {ComparedMetricsAnswer} */ _) => html`<${Chart} ...${frame} curves=${curves} title=${titleWithRank(title, curves)} />`}
    <//>
  `;
}

/** @param {Props} props */
export function GroupsChart({ subjects, looks, metrics, frame }) {
  const [by] = useGroupNames();
  const [chosen] = useRank();
  const rank = chosen === "all" ? "" : chosen;
  const trials = subjects.flatMap(({ ids }) => ids);
  const answer = useAnswer(address(["groups"], { trials, ...useGroupSettings(), by, metrics, rank, points: NUM_POINTS }), {
    follows: followsOf(subjects),
  });
  const [curves, note] = useMemo(() => {
    const { groups = [], charts = [] } = answer.value ?? {};
    const labels = labelsOf(by, groups);
    const keys = groups.map((group) => subjects.find(({ ids }) => ids.includes(group.trials[0]))?.key ?? "");
    const drawn = charts.flatMap((chart) =>
      chart.curves.map(({ group, x, centre, low, high, num_trials: numTrials }) => ({
        key: keys[group],
        label: metrics.length > 1 ? `${labels[group]}, ${chart.metric}` : labels[group],
        colour: looks.get(keys[group])?.colour ?? "",
        dash: metrics.length > 1 ? dashWithin(metrics.indexOf(chart.metric)) : looks.get(keys[group])?.dash,
        isBand: true,
        series: { x, minimum: low, maximum: high, mean: centre, numTrials },
      })),
    );
    return [drawn, charts.map((chart) => noteOf(chart, labels)).join(" ")];
  }, [answer.value, subjects, looks, metrics.join("\n")]);
  return html`
    <${Answered} answer=${answer} what=${`curves of ${frame.title}`}>
      ${(/** @type {GroupsAnswer} */ _) => html`<${Chart} ...${frame} curves=${curves} note=${note} axis="steps" title=${rank ? `${frame.title}, rank ${rank}` : frame.title} />`}
    <//>
  `;
}
