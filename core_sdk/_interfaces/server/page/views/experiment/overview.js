/** What an experiment is about, and how its trials stand. */

import { html, useMemo } from "../../preact.js";
import { Chart } from "../../charts/chart.js";
import { seriesColour } from "../../charts/palette.js";
import { useChartSettings } from "../../charts/settings.js";
import { StateBadge } from "../../parts/state-badge.js";
import { counted, formatNumber, formatTime } from "../../parts/text.js";
import { Answered, Remark } from "../../parts/states.js";
import { act, address } from "../../state/api.js";
import { useAnswer } from "../../state/answers.js";
import { linkTo } from "../../state/place.js";
import { Card } from "../facts.js";
import { Notes } from "../notes.js";
import { Time } from "../time.js";
/** @import { CurvesAnswer, ExperimentAnswer } from "api" */
/** @import { Change } from "../../state/events.js" */

/** @param {{found: ExperimentAnswer, follows: (change: Change) => boolean, onDone: () => void}} props */
export function ExperimentOverview({ found, follows, onDone }) {
  const { experiment, notes, metric, smaller_is_better: smallerIsBetter, best, states } = found;
  const { search } = experiment;
  return html`
    <div class="pane">
      ${(search?.warnings ?? []).map((warning) => html`<${Remark}>${warning}<//>`)}
      <${BestCurves} experimentId=${experiment.experiment_id} follows=${follows} />
      <div class="cards flat spaced">
        <section class="card">
          <h2>Trials</h2>
          <dl class="facts">
            ${Object.entries(states).map(([state, number]) => html`<dt><${StateBadge} state=${state} /></dt><dd class="tabular"><a class="count" href=${linkTo(["experiments", experiment.experiment_id, "trials"], { where: `state = ${state}` })}>${number}</a></dd>`)}
          </dl>
        </section>
        <${Card}
          title="Experiment"
          facts=${[
            ["Description", experiment.description],
            ["Searcher", search?.searcher],
            ["Metric", metric && `${metric}, ${smallerIsBetter ? "smaller" : "larger"} is better`],
            ["Best", best && html`${formatNumber(best.value, 6)} in <a href=${linkTo(["trials", best.trial_id])}>trial ${best.trial_id}</a>`],
            ["Created", formatTime(experiment.created)],
            ["Ended", search?.ended && formatTime(search.ended)],
            ["Archived", experiment.is_archived ? "yes" : ""],
          ]}
        />
        <${Time} address=${address(["experiments", experiment.experiment_id, "time"])} follows=${follows} about=${`time of ${experiment.experiment_id}`} />
      </div>
      <${Notes} notes=${notes} home=${experiment.home} save=${(/** @type {string} */ text, /** @type {string} */ before) => act(["experiments", experiment.experiment_id, "actions", "change"], { notes: text, notes_before: before })} onSaved=${onDone} />
    </div>
  `;
}

/** The curves of the best trials, by which one sees how the experiment went. @param {{experimentId: number, follows: (change: Change) => boolean}} props */
function BestCurves({ experimentId, follows }) {
  const settings = { ...useChartSettings(), axis: /** @type {const} */ ("steps") };
  const answer = useAnswer(address(["experiments", experimentId, "curves"], { top: "10", buckets: 300 }), { follows });
  const curves = useMemo(
    () => (answer.value?.curves ?? []).map((series, index) => ({ label: String(series.trial_id), colour: seriesColour(index), series })),
    [answer.value],
  );
  if (answer.value?.curves.length === 0) return null;
  return html`
    <${Answered} answer=${answer} what="curves">
      ${(/** @type {CurvesAnswer} */ { metric, num_trials: numTrials }) => html`<${Chart} title=${`${metric}, the best ${curves.length} of ${counted(numTrials, "trial")}`} curves=${curves} height=${260} ...${settings} />`}
    <//>
  `;
}
