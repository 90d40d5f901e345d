/** Trials side by side: their curves over each other, and in what they differ. */

import { html } from "../preact.js";
import { Select } from "../parts/choice.js";
import { Difference } from "../parts/difference.js";
import { own } from "../parts/own.js";
import { Answered, Empty, Remark, Title } from "../parts/states.js";
import { csvText, saveFile } from "../parts/saving.js";
import { Tabs } from "../parts/tabs.js";
import { counted, firstOf, formatValue } from "../parts/text.js";
import { address } from "../state/api.js";
import { once, useAnswer, useAnswers } from "../state/answers.js";
import { linkTo, useListSetting, usePlace, useSetting } from "../state/place.js";
import { FilesOfTwo } from "./code.js";
import { flattened } from "./facts.js";
import { ComparedMedia } from "./media/media.js";
import { Trials } from "./runs/trials-table.js";
import { ScatterOfTrials } from "./scatter.js";
import { nameOf } from "./series.js";
/** @import { ComparisonAnswer, ConfigurationAnswer, TrialAnswer, TrialRow } from "api" */
/** @import { Change } from "../state/events.js" */

/** The largest numbers of trials side by side, and in the list next to the charts. */
const MAX_TRIALS = 30;
const MAX_LISTED = 1000;

export function Compare() {
  const { path, query } = usePlace();
  const [wanted] = useListSetting("trials");
  const ids = [...new Set(wanted.filter((id) => /^[1-9]\d*$/.test(id)))];
  const tab = path[1] ?? "metrics";
  const isMetrics = tab === "metrics";
  const isScatter = tab === "scatter";
  const hasMany = isMetrics || isScatter;
  const shown = ids.slice(0, hasMany ? MAX_LISTED : MAX_TRIALS).map(Number);
  const trials = query.get("trials");
  const tabs = [
    ["metrics", "Metrics"],
    ["media", "Media"],
    ["values", "Values and hyperparameters"],
    ["scatter", "Scatter plot"],
    ["configuration", "Configurations"],
    ["code", "Code"],
  ].map(([name, title]) => ({ name, title, href: linkTo(["compare", name], { trials }) }));
  const follows = (/** @type {Change} */ { trials: changed }) => changed.some((id) => shown.includes(id));
  const answer = useAnswer(shown.length && !hasMany ? address(["comparison"], { trials: shown }) : null, { follows });
  if (shown.length === 0) {
    return html`<${Title} text="Comparison" /><${Empty} title="No trials are chosen."><a href=${linkTo(["runs"])}>Choose them in the table of runs</a><//>`;
  }
  return html`
    <section class="view" aria-label="Comparison">
      <${Title} text=${`Comparison of ${counted(shown.length, "trial")}`} />
      <${Tabs} label="Parts of the comparison" tabs=${tabs} current=${tab} />
      ${ids.length > shown.length && html`<${Remark}>Only the first ${shown.length} of ${ids.length} trials are compared.<//>`}
      ${isMetrics && html`<div class="tab"><${Trials} key=${trials} trials=${shown} isWorkspace=${true} /></div>`}
      ${isScatter && html`<div class="tab"><${ScatterOfTrials} trials=${shown} follows=${follows} /></div>`}
      ${
        !hasMany &&
        html`<${Answered} answer=${answer} what="trials">
        ${(/** @type {ComparisonAnswer} */ { trials: found }) => html`
          <div class="tab">
            ${tab === "media" && html`<${ComparedMedia} found=${found} follows=${follows} />`}
            ${tab === "values" && html`<div class="pane"><${Values} found=${found} /></div>`}
            ${tab === "configuration" && html`<${Configurations} found=${found} />`}
            ${tab === "code" && html`<${CodeOfTwo} found=${found} />`}
          </div>
        `}
      <//>`
      }
    </section>
  `;
}

/** A row for each value, first those in which the trials differ. @param {{found: TrialAnswer[]}} props */
function Values({ found }) {
  const others = new Set(["experiment", "state", "steps", "commit", ...found.flatMap(({ series }) => series.map(nameOf))]);
  const columns = found.map(({ trial, series }) => ({
    ...Object.fromEntries([
      ["experiment", trial.experiment_name],
      ["state", trial.state],
      ["steps", formatValue(trial.steps_completed)],
      ["commit", trial.environment?.git_commit.slice(0, 12) ?? ""],
    ]),
    // As everywhere, a hyperparameter has its whole name where the short one could mean something else.
    ...Object.fromEntries(flattened(trial.hparams).map(([name, value]) => [others.has(name) ? `hparams.${name}` : name, value])),
    ...Object.fromEntries(series.map((one) => [nameOf(one), formatValue(one.last)])),
  }));
  const names = [...new Set(columns.flatMap((column) => Object.keys(column).filter((name) => own(column, name) !== "")))];
  const differs = (/** @type {string} */ name) => new Set(columns.map((column) => own(column, name) ?? "")).size > 1;
  const ordered = [...names.filter(differs), ...names.filter((name) => !differs(name))];
  const save = () => {
    const head = ["", ...found.map(({ trial }) => trial.trial_id)];
    saveFile("comparison.csv", csvText([head, ...ordered.map((name) => [name, ...columns.map((column) => own(column, name) ?? "")])]), "text/csv");
  };
  return html`
    <section class="card">
      ${found.some(isPartial) && html`<${Remark}>There are rows of the first 1,000 metrics and of the first 1,000 hyperparameters of each trial.<//>`}
      <div class="row"><p class="soft">Rows in which the trials differ come first and are marked.</p><span class="spread"></span><button class="small" onClick=${save}>Save as CSV</button></div>
      <div class="scroll-x" tabindex="0" role="region" aria-label="Values">
        <table class="plain-table">
          <thead><tr><th>Name</th>${found.map(({ trial }) => html`<th><a href=${linkTo(["trials", trial.trial_id])}>${trial.trial_id} ${trial.name}</a></th>`)}</tr></thead>
          <tbody>
            ${ordered.map((name) => html`<tr class=${differs(name) ? "differs" : ""}><th scope="row">${name}</th>${columns.map((column) => html`<td>${own(column, name) ?? html`<span class="soft">–</span>`}</td>`)}</tr>`)}
          </tbody>
        </table>
      </div>
    </section>
  `;
}

/**
 * The first and the last trial, until others are chosen, and what chooses them.
 * @param {TrialAnswer[]} found
 */
function usePair(found) {
  const [left, setLeft] = useSetting("left", String(found[0].trial.trial_id));
  const [right, setRight] = useSetting("right", String(found[found.length - 1].trial.trial_id));
  const choices = found.map(({ trial }) => [String(trial.trial_id), labelOf(trial)]);
  const tools = html`
    <div class="toolbar">
      <${Select} label="From" values=${choices} value=${left} onChange=${setLeft} />
      <${Select} label="to" values=${choices} value=${right} onChange=${setRight} />
    </div>
  `;
  return { left, right, tools };
}

/** @param {{found: TrialAnswer[]}} props */
function CodeOfTwo({ found }) {
  const { left, right, tools } = usePair(found);
  const subjectOf = (/** @type {string} */ id) => {
    const { trial } = found.find((one) => String(one.trial.trial_id) === id) ?? found[0];
    return { kind: "trial", id: trial.trial_id, experimentId: trial.experiment_id, hparams: null };
  };
  return html`
    ${tools}
    <div class="pane"><${FilesOfTwo} key=${`${left} ${right}`} left=${subjectOf(left)} right=${subjectOf(right)} /></div>
  `;
}

/** @param {{found: TrialAnswer[]}} props */
function Configurations({ found }) {
  const { left, right, tools } = usePair(found);
  const answer = useAnswers(
    [left, right].map((id) => address(["trials", id, "configuration"])),
    once,
  );
  return html`
    ${tools}
    <div class="pane">
      <${Answered} answer=${answer} what="configurations">
        ${(/** @type {ConfigurationAnswer[]} */ [from, to]) => html`<${Difference} left=${textOf(from)} right=${textOf(to)} leftName=${`trial ${left}`} rightName=${`trial ${right}`} />`}
      <//>
    </div>
  `;
}

const isPartial = (/** @type {TrialAnswer} */ { next, trial, num_hparams: num }) => next !== null || num > flattened(trial.hparams).length;
const textOf = (/** @type {ConfigurationAnswer} */ { yaml, hparams, num_hparams: num }) => {
  const lines = flattened(hparams ?? {}).map(([name, value]) => `${name}: ${value}`);
  const head = `# Hyperparameters of the trial${num > lines.length ? `, the first ${firstOf(lines.length, num)}` : ""}`;
  return `${[head, ...lines].join("\n")}\n\n${yaml}`;
};
const labelOf = (/** @type {TrialRow} */ trial) => `${trial.trial_id} ${trial.experiment_name}`;
