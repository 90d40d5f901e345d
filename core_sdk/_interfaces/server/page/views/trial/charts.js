/** The charts of a trial's metrics. */

import { html, useMemo } from "../../preact.js";
import { ChartTools } from "../../charts/settings.js";
import { Switch } from "../../parts/choice.js";
import { Empty, Remark } from "../../parts/states.js";
import { counted } from "../../parts/text.js";
import { useAnswer } from "../../state/answers.js";
import { address } from "../../state/api.js";
import { useSetting } from "../../state/place.js";
import { RankChoice, useRank } from "../rank-choice.js";
import { nameOf } from "../series.js";
import { BaselineChoice } from "../workspace/baseline.js";
import { readPanels } from "../workspace/panels.js";
import { MetricSearch, OrderChoice, PanelGrid, PanelTools } from "../workspace/panel-grid.js";
import { TrialsChart } from "../workspace/subject-charts.js";
/** @import { TrialAnswer } from "api" */
/** @import { Frame } from "../workspace/panel-grid.js" */

/** @param {{found: TrialAnswer}} props */
export function TrialCharts({ found }) {
  const { trial, reporting_ranks: ranks } = found;
  const series = useSeries(found);
  const [superseded, setSuperseded] = useSetting("superseded", "1");
  const [rank] = useRank();
  const { trial_id: id, created: started, steps_completed: steps } = trial;
  const subjects = useMemo(() => [{ key: String(id), name: "", label: "", ids: [id], values: { started, steps } }], [id, started, steps]);
  const metrics = series.filter((one) => rank === "" || rank === "all" || one.ranks.map(String).includes(rank)).map(nameOf);
  if (series.length === 0) {
    return html`<${Empty} title="Nothing was reported yet.">What the trial reports appears here while it runs.<//>`;
  }
  const draw = (/** @type {string[]} */ names, /** @type {Frame} */ frame) => html`
    <${TrialsChart} subjects=${subjects} looks=${null} metrics=${names} frame=${frame} showsSuperseded=${superseded === "1"} />
  `;
  return html`
    <div class="toolbar">
    <${ChartTools} search=${html`<${MetricSearch} />`} tools=${html`<${PanelTools} metrics=${metrics} />`}>
      ${trial.num_attempts > 1 && html`<${Switch} label="Superseded" title="Show what later attempts have replaced." isOn=${superseded === "1"} onChange=${(/** @type {boolean} */ isOn) => setSuperseded(isOn ? "1" : "0")} />`}
      <${RankChoice} ranks=${ranks} lowest=${`lowest (${ranks[0]})`} />
      <${BaselineChoice} />
      <${OrderChoice} metrics=${metrics} />
    <//>
    </div>
    <div class="pane">
      ${found.next !== null && html`<${Remark}>There are charts of the first ${counted(found.series.length, "metric")} of ${found.num_found.toLocaleString("en-US")}. A part of a name finds others.<//>`}
      <${PanelGrid} metrics=${metrics} draw=${draw} />
    </div>
  `;
}

/**
 * The metrics of a trial. Of more than a page these are the first ones, metrics that somebody looks for, and metrics of charts
 * that somebody has made.
 * @param {TrialAnswer} found
 */
function useSeries({ trial: { trial_id: id }, series, next }) {
  const [search] = useSetting("metrics");
  const [panels] = useSetting("panels");
  const names = readPanels(panels).flatMap(({ of }) => of);
  const isAsked = next !== null && (search !== "" || names.length > 0);
  const answer = useAnswer(isAsked ? address(["trials", id], { search, names }) : null, {
    about: `metrics of ${id}`,
    follows: ({ trials }) => trials.includes(id),
  });
  return useMemo(() => {
    const all = [...series, ...((isAsked && answer.value?.series) || [])];
    return [...new Map(all.map((one) => [nameOf(one), one])).values()];
  }, [series, answer.value, isAsked]);
}
