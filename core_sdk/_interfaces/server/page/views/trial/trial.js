/** One trial. */

import { html } from "../../preact.js";
import { Answered, Remark, Title } from "../../parts/states.js";
import { StateBadge } from "../../parts/state-badge.js";
import { Tabs } from "../../parts/tabs.js";
import { counted, firstOf, formatAge, formatDuration, formatTime } from "../../parts/text.js";
import { address } from "../../state/api.js";
import { useAnswer } from "../../state/answers.js";
import { linkTo } from "../../state/place.js";
import { ActionButtons } from "../action-buttons.js";
import { Checkpoints } from "../checkpoints.js";
import { Code } from "../code.js";
import { TrialMedia } from "../media/media.js";
import { TrialCharts } from "./charts.js";
import { Logs } from "./logs.js";
import { Overview } from "./overview.js";
import { Progress } from "../../parts/progress.js";
import { System } from "./system.js";
/** @import { TrialAnswer } from "api" */
/** @import { Change } from "../../state/events.js" */

const TABS = [
  ["charts", "Charts"],
  ["media", "Media"],
  ["overview", "Overview"],
  ["system", "System"],
  ["logs", "Logs"],
  ["checkpoints", "Checkpoints"],
  ["code", "Code and configuration"],
];

/** @param {{id: string, tab: string}} props */
export function Trial({ id, tab }) {
  const answer = useAnswer(address(["trials", id]), { follows: ({ trials }) => trials.includes(Number(id)) });
  const current = TABS.some(([name]) => name === tab) ? tab : "charts";
  const tabs = TABS.map(([name, title]) => ({ name, title, href: linkTo(["trials", id, ...(name === "charts" ? [] : [name])]) }));
  return html`
    <section class="view" aria-label=${`Trial ${id}`}>
      ${answer.value === undefined && html`<${Title} text=${`Trial ${id}`} />`}
      <${Answered} answer=${answer} what=${`trial ${id}`}>
        ${(/** @type {TrialAnswer} */ found) => html`
          <${Head} found=${found} onDone=${answer.reload} />
          <${Tabs} label="Parts of the trial" tabs=${tabs} current=${current} />
          <${Problems} found=${found} />
          <div class="tab">
            ${current === "charts" && html`<${TrialCharts} found=${found} />`}
            ${current === "media" && html`<${TrialMedia} found=${found} />`}
            ${current === "overview" && html`<${Overview} found=${found} onDone=${answer.reload} />`}
            ${current === "system" && html`<${System} found=${found} />`}
            ${current === "logs" && html`<${Logs} trial=${found.trial} />`}
            ${current === "checkpoints" && html`<${Checkpoints} query=${{ trial: Number(id) }} experimentId=${found.trial.experiment_id} home=${found.trial.home} follows=${(/** @type {Change} */ { trials }) => trials.includes(Number(id))} />`}
            ${current === "code" && html`<${Code} subject=${{ kind: "trial", id: Number(id), experimentId: found.trial.experiment_id, hparams: found.trial.hparams, numHparams: found.num_hparams }} />`}
          </div>
        `}
      <//>
    </section>
  `;
}

/** @param {{found: TrialAnswer, onDone: () => void}} props */
function Head({ found: { trial, num_labels: numLabels }, onDone }) {
  const end = trial.ended ?? (trial.state === "ACTIVE" ? Date.now() / 1000 : null);
  return html`
    <header class="subject">
      <div class="subject-name">
        <a href=${linkTo(["experiments", trial.experiment_id])} title=${trial.experiment_name}>${trial.experiment_name || `experiment ${trial.experiment_id}`}</a>
        <span class="soft" aria-hidden="true">›</span>
        <h1>Trial ${trial.trial_id}</h1>
        <b>${trial.name}</b>
        <${StateBadge} state=${trial.state} reason=${trial.reason} />
        ${trial.state === "ACTIVE" && trial.progress != null && html`<${Progress} part=${trial.progress} />`}
        ${trial.is_archived && html`<span class="chip">archived</span>`}
        ${trial.labels.map((label) => html`<span class="chip" title=${label}>${label}</span>`)}
        ${numLabels > trial.labels.length && html`<span class="soft">the first ${firstOf(trial.labels.length, numLabels)} labels</span>`}
      </div>
      <div class="subject-actions"><${ActionButtons} kind="trials" rows=${[trial]} onDone=${onDone} /></div>
      <div class="subject-facts soft">
        <span>${counted(trial.steps_completed, "step")}</span>
        ${trial.num_attempts > 1 && html`<span>${counted(trial.num_attempts, "attempt")}</span>`}
        <span title=${formatTime(trial.created)}>started ${formatAge(trial.created)}</span>
        ${end && html`<span>ran ${formatDuration(end - trial.created)}</span>`}
        ${trial.status && html`<span>${trial.status}</span>`}
        ${trial.reason && html`<span class="reason" title=${trial.reason}>${trial.reason}</span>`}
      </div>
    </header>
  `;
}

/** The records that could not be read, or were never written. @param {{found: TrialAnswer}} props */
function Problems({ found: { trial, problem } }) {
  const problems = [
    problem,
    trial.num_bad_lines > 0 && `${counted(trial.num_bad_lines, "line")} of the journal cannot be read; all others are shown.`,
    trial.num_dropped > 0 && `${counted(trial.num_dropped, "record")} could not be written while the trial ran, and are lost; all others are shown.`,
  ].filter(Boolean);
  return problems.map((text) => html`<${Remark}>${text}<//>`);
}
