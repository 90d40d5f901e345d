/** The curves of groups of trials: a chart for each metric, with a line and a band for each group. */

import { html, useMemo, useRef, useState } from "../../preact.js";
import { Chart } from "../../charts/chart.js";
import { dashOf, LineSample, seriesColour } from "../../charts/palette.js";
import { Answered, Empty } from "../../parts/states.js";
import { counted, formatNumber } from "../../parts/text.js";
import { address } from "../../state/api.js";
import { useAnswer } from "../../state/answers.js";
import { linkTo } from "../../state/place.js";
import { useGroupNames, useGroupSettings } from "./choice.js";
import { labelsOf, noteOf } from "./words.js";
/** @import { GroupAnswer, GroupedChartAnswer, GroupsAnswer } from "api" */
/** @import { ChartSettings } from "../../charts/settings.js" */
/** @import { Change } from "../../state/events.js" */

const NUM_POINTS = 300;

/** Which trials are asked for. @typedef {{experiment: number} | {trials: number[]}} Trials */

/** By what the trials can be grouped, and the metrics that they have. @param {Trials} trials @param {(change: Change) => boolean} follows */
export function useKnownGroups(trials, follows) {
  const { best } = useGroupSettings();
  return useAnswer(address(["groups"], { ...trials, best }), { follows });
}

/**
 * @param {object} props
 * @param {Trials} props.trials
 * @param {string[]} props.metrics
 * @param {string} props.rank
 * @param {ChartSettings} props.settings
 * @param {number} props.height
 * @param {(change: Change) => boolean} props.follows
 */
export function GroupedCharts({ trials, metrics, rank, settings, height, follows }) {
  const [names] = useGroupNames();
  const members = useRef(/** @type {Set<number>} */ (new Set()));
  const answer = useAnswer(address(["groups"], { ...trials, ...useGroupSettings(), by: names, metrics, rank, points: NUM_POINTS }), {
    follows: (change) => follows(change) || change.trials.some((id) => members.current.has(id)),
  });
  members.current = new Set(answer.value?.groups.flatMap((group) => group.trials));
  return html`
    <${Answered} answer=${answer} what="groups">
      ${(/** @type {GroupsAnswer} */ { groups, charts }) => html`<${Groups} names=${names} groups=${groups} charts=${charts} settings=${settings} height=${height} />`}
    <//>
  `;
}

/** @param {{names: string[], groups: GroupAnswer[], charts: GroupedChartAnswer[], settings: ChartSettings, height: number}} props */
function Groups({ names, groups, charts, settings, height }) {
  const labels = useMemo(() => labelsOf(names, groups), [names.join("\n"), groups]);
  const drawn = charts.filter(({ curves }) => curves.length > 0);
  return html`
    <ul class="legend" aria-label="Groups">
      ${groups.map((group, index) => html`<${Group} key=${labels[index]} group=${group} index=${index} label=${labels[index]} />`)}
    </ul>
    ${drawn.length === 0 && html`<${Empty} title="No trial has reported this metric." />`}
    <div class=${drawn.length > 1 ? "charts" : ""}>
      ${drawn.map((chart) => html`<${GroupedChart} key=${chart.metric} chart=${chart} labels=${labels} settings=${settings} height=${height} />`)}
    </div>
  `;
}

/** A group in the legend; it opens to its trials, of which the best comes first. @param {{group: GroupAnswer, index: number, label: string}} props */
function Group({ group: { trials, best, best_value: value }, index, label }) {
  const [isOpen, setIsOpen] = useState(false);
  const others = trials.filter((id) => id !== best);
  return html`
    <li>
      <${LineSample} colour=${seriesColour(index)} dash=${dashOf(index)} />
      <button class="quiet small" aria-expanded=${isOpen} onClick=${() => setIsOpen(!isOpen)}>${label} · ${counted(trials.length, "trial")} ${isOpen ? "▾" : "▸"}</button>
      ${
        isOpen &&
        html`
        <span class="group-trials">
          ${best !== null && html`<b>best <a href=${linkTo(["trials", best])}>${best}</a> ${formatNumber(value)}</b>`}
          ${others.map((id) => html`<a key=${id} href=${linkTo(["trials", id])}>${id}</a>`)}
          <a href=${linkTo(["compare"], { trials: trials.join(",") })}>compare them</a>
        </span>
      `
      }
    </li>
  `;
}

/** @param {{chart: GroupedChartAnswer, labels: string[], settings: ChartSettings, height: number}} props */
function GroupedChart({ chart, labels, settings, height }) {
  const curves = useMemo(
    () =>
      chart.curves.map(({ group, x, centre, low, high, num_trials: numTrials }) => ({
        label: labels[group],
        colour: seriesColour(group),
        dash: dashOf(group),
        isBand: true,
        series: { x, minimum: low, maximum: high, mean: centre, numTrials },
      })),
    [chart, labels],
  );
  return html`<${Chart} title=${chart.metric} curves=${curves} note=${noteOf(chart, labels)} height=${height} ...${settings} axis="steps" />`;
}
