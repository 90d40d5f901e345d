/** What an experiment is about, and how its trials stand. */

import { html, useState } from "../../preact.js";
import { Markdown } from "../../parts/markdown.js";
import { StateBadge } from "../../parts/state-badge.js";
import { formatNumber, formatTime } from "../../parts/text.js";
import { say, sayFailure } from "../../parts/toast.js";
import { Remark } from "../../parts/states.js";
import { act } from "../../state/api.js";
import { linkTo } from "../../state/place.js";
import { Card } from "../facts.js";
import { withText } from "../../parts/field.js";
/** @import { ExperimentAnswer } from "api" */

/** @param {{found: ExperimentAnswer, onDone: () => void}} props */
export function ExperimentOverview({ found, onDone }) {
  const { experiment, notes, metric, smaller_is_better: smallerIsBetter, best, states } = found;
  const { search } = experiment;
  return html`
    <div class="pane">
      ${(search?.warnings ?? []).map((warning) => html`<${Remark}>${warning}<//>`)}
      <div class="cards flat">
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
      </div>
      <${Notes} experimentId=${experiment.experiment_id} notes=${notes} onSaved=${onDone} />
    </div>
  `;
}

/** @param {{experimentId: number, notes: string, onSaved: () => void}} props */
function Notes({ experimentId, notes, onSaved }) {
  const [draft, setDraft] = useState(/** @type {string | null} */ (null));
  const save = async () => {
    try {
      await act(["experiments", experimentId, "actions", "change"], { notes: draft });
      setDraft(null);
      say("The notes are saved.");
      onSaved();
    } catch (error) {
      sayFailure(error);
    }
  };
  return html`
    <section class="card spaced">
      <div class="row">
        <h2>Notes</h2>
        <span class="spread"></span>
        ${draft === null ? html`<button class="small" onClick=${() => setDraft(notes)}>Edit</button>` : html`<button class="small" onClick=${() => setDraft(null)}>Cancel</button><button class="small primary" onClick=${save}>Save</button>`}
      </div>
      ${
        draft !== null
          ? html`<textarea rows="14" aria-label="Notes in Markdown" value=${draft} onInput=${withText(setDraft)}></textarea>`
          : notes
            ? html`<${Markdown} text=${notes} />`
            : html`<p class="soft">None yet. They are written in Markdown.</p>`
      }
    </section>
  `;
}
