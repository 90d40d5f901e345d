/** The charts of a trial's metrics. */

import { html, useMemo } from "../../preact.js";
import { ChartTools } from "../../charts/settings.js";
import { Switch } from "../../parts/choice.js";
import { Empty } from "../../parts/states.js";
import { useSetting } from "../../state/place.js";
import { RankChoice, useRank } from "../rank-choice.js";
import { BaselineChoice } from "../workspace/baseline.js";
import { useMetricNames } from "../workspace/metric-names.js";
import { MetricSearch, OrderChoice, PanelGrid, PanelTools } from "../workspace/panel-grid.js";
import { TrialsChart } from "../workspace/subject-charts.js";
/** @import { TrialAnswer } from "api" */
/** @import { Frame } from "../workspace/panel-grid.js" */

/** @param {{found: TrialAnswer}} props */
export function TrialCharts({ found }) {
  const { trial, reporting_ranks: ranks } = found;
  const [superseded, setSuperseded] = useSetting("superseded", "1");
  const [rank] = useRank();
  const { trial_id: id, created: started, steps_completed: steps } = trial;
  const subjects = useMemo(() => [{ key: String(id), name: "", label: "", ids: [id], values: { started, steps } }], [id, started, steps]);
  const metrics = useMetricNames(
    useMemo(() => [id], [id]),
    rank === "all" ? "" : rank,
  );
  if (found.num_found === 0) {
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
      <${PanelGrid} metrics=${metrics} draw=${draw} />
    </div>
  `;
}
