/** One experiment. */

import { html } from "../../preact.js";
import { Answered, Title } from "../../parts/states.js";
import { StateBadge } from "../../parts/state-badge.js";
import { Tabs } from "../../parts/tabs.js";
import { counted, firstOf, formatAge, formatNumber, formatTime } from "../../parts/text.js";
import { address } from "../../state/api.js";
import { useAnswer } from "../../state/answers.js";
import { linkTo } from "../../state/place.js";
import { ActionButtons } from "../action-buttons.js";
import { Checkpoints } from "../checkpoints.js";
import { Code } from "../code.js";
import { Trials } from "../runs/trials-table.js";
import { Progress } from "../../parts/progress.js";
import { ExperimentOverview } from "./overview.js";
import { Hyperparameters } from "./hyperparameters.js";
import { Search } from "./search.js";
import { Study } from "./study.js";
import { Variations } from "./variations.js";
/** @import { ExperimentAnswer } from "api" */
/** @import { Change } from "../../state/events.js" */

const TABS = [
  ["overview", "Overview"],
  ["search", "Search"],
  ["curves", "Learning curves"],
  ["study", "Study"],
  ["variations", "Variations"],
  ["hyperparameters", "Hyperparameters"],
  ["trials", "Trials"],
  ["checkpoints", "Checkpoints"],
  ["code", "Code and configuration"],
];

/** @param {{id: string, tab: string}} props */
export function Experiment({ id, tab }) {
  const follows = (/** @type {Change} */ { experiments }) => experiments.includes(Number(id));
  const answer = useAnswer(address(["experiments", id]), { follows });
  return html`
    <section class="view" aria-label=${`Experiment ${id}`}>
      ${answer.value === undefined && html`<${Title} text=${`Experiment ${id}`} />`}
      <${Answered} answer=${answer} what=${`experiment ${id}`}>
        ${(/** @type {ExperimentAnswer} */ found) => html`<${Found} found=${found} tab=${tab} follows=${follows} onDone=${answer.reload} />`}
      <//>
    </section>
  `;
}

/** @param {{found: ExperimentAnswer, tab: string, follows: (change: Change) => boolean, onDone: () => void}} props */
function Found({ found, tab, follows, onDone }) {
  const { experiment } = found;
  const id = experiment.experiment_id;
  /** @type {Record<string, boolean>} */
  const absent = { search: !found.is_submitted, study: !found.is_study, variations: found.is_study || found.num_variations === 0 };
  const possible = TABS.filter(([name]) => !absent[name]);
  const current = possible.some(([name]) => name === tab) ? tab : "overview";
  const tabs = possible.map(([name, title]) => ({ name, title, href: linkTo(["experiments", id, ...(name === "overview" ? [] : [name])]) }));
  return html`
    <${Head} found=${found} onDone=${onDone} />
    <${Tabs} label="Parts of the experiment" tabs=${tabs} current=${current} />
    <div class="tab">
      ${current === "overview" && html`<${ExperimentOverview} found=${found} follows=${follows} onDone=${onDone} />`}
      ${current === "search" && html`<${Search} experimentId=${id} follows=${follows} />`}
      ${current === "curves" && html`<${Trials} key="curves" experiment=${id} isWorkspace=${true} />`}
      ${current === "study" && html`<${Study} experimentId=${id} follows=${follows} />`}
      ${current === "variations" && html`<${Variations} experimentId=${id} follows=${follows} />`}
      ${current === "hyperparameters" && html`<${Hyperparameters} found=${found} follows=${follows} />`}
      ${current === "trials" && html`<${Trials} experiment=${id} />`}
      ${current === "checkpoints" && html`<${Checkpoints} query=${{ experiment: id }} experimentId=${id} home=${experiment.home} follows=${follows} />`}
      ${current === "code" && html`<${Code} subject=${{ kind: "experiment", id, experimentId: id, hparams: null }} />`}
    </div>
  `;
}

/** @param {{found: ExperimentAnswer, onDone: () => void}} props */
function Head({ found: { experiment, best, metric, num_labels: numLabels }, onDone }) {
  const { search } = experiment;
  return html`
    <header class="subject">
      <div class="subject-name">
        <h1 title=${experiment.name}>${experiment.name}</h1>
        <span class="soft">experiment ${experiment.experiment_id}</span>
        <${StateBadge} state=${experiment.state} reason=${search?.reason} />
        ${search?.progress != null && experiment.state === "ACTIVE" && html`<${Progress} part=${search.progress} />`}
        ${experiment.labels.map((label) => html`<span class="chip" title=${label}>${label}</span>`)}
        ${numLabels > experiment.labels.length && html`<span class="soft">the first ${firstOf(experiment.labels.length, numLabels)} labels</span>`}
      </div>
      <div class="subject-actions"><${ActionButtons} kind="experiments" rows=${[experiment]} onDone=${onDone} /></div>
      <div class="subject-facts soft">
        <span>${counted(experiment.num_trials, "trial")}</span>
        ${search && html`<span>${search.searcher}</span>`}
        ${best && html`<span>best ${metric} <b>${formatNumber(best.value)}</b> in <a href=${linkTo(["trials", best.trial_id])}>trial ${best.trial_id}</a></span>`}
        <span title=${formatTime(experiment.created)}>created ${formatAge(experiment.created)}</span>
        ${experiment.parent && html`<span>forked from <a href=${linkTo(["experiments", experiment.parent])}>experiment ${experiment.parent}</a></span>`}
        <span><a href=${linkTo(["experiments", experiment.experiment_id, "report"])}>report</a></span>
        ${search?.reason && html`<span class="reason" title=${search.reason}>${search.reason}</span>`}
      </div>
    </header>
  `;
}
