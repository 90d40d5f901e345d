/** Trials side by side: their curves over each other, and in what they differ. */

import { html, useMemo } from "../preact.js";
import { Chart } from "../charts/chart.js";
import { seriesColour } from "../charts/palette.js";
import { ChartSettingsBar, useChartSettings } from "../charts/settings.js";
import { Select } from "../parts/choice.js";
import { Difference } from "../parts/difference.js";
import { own } from "../parts/own.js";
import { StateBadge } from "../parts/state-badge.js";
import { Answered, Empty, Remark, Title } from "../parts/states.js";
import { csvText, saveFile } from "../parts/saving.js";
import { Tabs } from "../parts/tabs.js";
import { counted, formatValue } from "../parts/text.js";
import { address } from "../state/api.js";
import { once, useAnswer, useAnswers } from "../state/answers.js";
import { linkTo, useListSetting, usePlace, useSetting } from "../state/place.js";
import { flattened } from "./facts.js";
import { GroupFields, useGroupNames } from "./groups/choice.js";
import { GroupedCharts, useKnownGroups } from "./groups/grouped-charts.js";
import { ComparedMedia } from "./media/media.js";
import { MAX_CURVES, nameOf } from "./series.js";
import { RankChoice, titleWithRank, useRank } from "./rank-choice.js";
import { withText } from "../parts/field.js";
/** @import { ComparedMetricsAnswer, ComparisonAnswer, ConfigurationAnswer, GroupsAnswer, MetricsAnswer, TrialAnswer, TrialRow } from "api" */
/** @import { ChartSettings } from "../charts/settings.js" */
/** @import { Change } from "../state/events.js" */

const MAX_TRIALS = 30;
const MAX_GROUPED_TRIALS = 1000;
const MAX_CHARTS = 24;
const NUM_BUCKETS = 400;

export function Compare() {
  const { path, query } = usePlace();
  const [wanted] = useListSetting("trials");
  const ids = [...new Set(wanted.filter((id) => /^[1-9]\d*$/.test(id)))];
  const tab = path[1] ?? "metrics";
  const [groupNames] = useGroupNames();
  const isGrouped = tab === "metrics" && groupNames.length > 0;
  const shown = ids.slice(0, isGrouped ? MAX_GROUPED_TRIALS : MAX_TRIALS).map(Number);
  const trials = query.get("trials");
  const tabs = [
    ["metrics", "Metrics"],
    ["media", "Media"],
    ["values", "Values and hyperparameters"],
    ["configuration", "Configurations"],
  ].map(([name, title]) => ({ name, title, href: linkTo(["compare", name], { trials }) }));
  const follows = (/** @type {Change} */ { trials: changed }) => changed.some((id) => shown.includes(id));
  const answer = useAnswer(shown.length && !isGrouped ? address(["comparison"], { trials: shown }) : null, { follows });
  if (shown.length === 0) {
    return html`<${Title} text="Comparison" /><${Empty} title="No trials are chosen."><a href=${linkTo(["runs"])}>Choose them in the table of runs</a><//>`;
  }
  return html`
    <section class="view" aria-label="Comparison">
      <${Title} text=${`Comparison of ${counted(shown.length, "trial")}`} />
      <${Tabs} label="Parts of the comparison" tabs=${tabs} current=${tab} />
      ${ids.length > shown.length && html`<${Remark}>Only the first ${shown.length} of ${ids.length} trials are compared: more curves cannot be told apart. Group them to see all.<//>`}
      ${isGrouped && html`<div class="tab"><${GroupedMetrics} ids=${shown} follows=${follows} /></div>`}
      ${
        !isGrouped &&
        html`<${Answered} answer=${answer} what="trials">
        ${(/** @type {ComparisonAnswer} */ { trials: found }) => html`
          <div class="tab">
            ${tab === "metrics" && html`<${Metrics} found=${found} follows=${follows} />`}
            ${tab === "media" && html`<${ComparedMedia} found=${found} follows=${follows} />`}
            ${tab === "values" && html`<div class="pane"><${Values} found=${found} /></div>`}
            ${tab === "configuration" && html`<${Configurations} found=${found} />`}
          </div>
        `}
      <//>`
      }
    </section>
  `;
}

/** The metrics of groups of the trials. @param {{ids: number[], follows: (change: Change) => boolean}} props */
function GroupedMetrics({ ids, follows }) {
  const settings = useChartSettings();
  const [search, setSearch] = useSetting("search");
  const [rank] = useRank();
  const known = useKnownGroups({ trials: ids }, follows);
  const metricsOf = (/** @type {GroupsAnswer} */ { metrics }) =>
    metrics.filter((name) => name.toLowerCase().includes(search.toLowerCase())).slice(0, MAX_CHARTS);
  return html`
    <${ChartSettingsBar} hasAxis=${false}>
      <${GroupFields} known=${known.value} />
      <input type="search" class="search" placeholder="Find a metric  /" aria-label="Find a metric" value=${search} onInput=${withText(setSearch)} />
    <//>
    <div class="pane">
      <${Answered} answer=${known} what="metrics">
        ${(/** @type {GroupsAnswer} */ value) => html`<${GroupedCharts} trials=${{ trials: ids }} metrics=${metricsOf(value)} rank=${rank === "all" ? "" : rank} settings=${settings} height=${250} follows=${follows} />`}
      <//>
    </div>
  `;
}

/** @param {{found: TrialAnswer[], follows: (change: Change) => boolean}} props */
function Metrics({ found, follows }) {
  const settings = useChartSettings();
  const [search, setSearch] = useSetting("search");
  const [rank] = useRank();
  const ranks = [...new Set(found.flatMap(({ reporting_ranks: of }) => of))].sort((one, other) => one - other);
  const isOfRanks = found.some(({ reporting_ranks: of }) => of.length > 1);
  const mostRanks = rank === "all" ? Math.max(...found.map(({ reporting_ranks: of }) => of.length)) : 1;
  const numCharts = Math.min(MAX_CHARTS, Math.max(1, Math.floor(MAX_CURVES / mostRanks)));
  const drawn = useMemo(() => drawnOf(found, rank === "all"), [found, rank]);
  const all = [...new Set(found.flatMap(({ series }) => series.map(nameOf)))];
  const names = all.filter((name) => name.toLowerCase().includes(search.toLowerCase())).slice(0, numCharts);
  const ids = found.map(({ trial }) => trial.trial_id);
  const known = useKnownGroups({ trials: ids }, follows);
  const answer = useAnswer(address(["comparison", "metrics"], { trials: ids, names, x: settings.axis, buckets: NUM_BUCKETS, rank: rank || null }), {
    follows,
  });
  return html`
    <${ChartSettingsBar}>
      <${RankChoice} ranks=${isOfRanks ? ranks : []} />
      <${GroupFields} known=${known.value} />
      <input type="search" class="search" placeholder="Find a metric  /" aria-label="Find a metric" value=${search} onInput=${withText(setSearch)} />
    <//>
    <div class="pane">
      <ul class="legend" aria-label="Trials">
        ${drawn.map(({ trial, rank: of, colour }) => html`<li><i class="swatch" style=${{ background: `var(${colour})` }}></i><a href=${linkTo(["trials", trial.trial_id])} title=${labelOf(trial)}>${labelOf(trial)}${of !== null && `, rank ${of}`}</a><${StateBadge} state=${trial.state} /></li>`)}
      </ul>
      ${all.length > names.length && search === "" && html`<${Remark}>The first ${names.length} of ${all.length} metrics are drawn. The search finds others.<//>`}
      <${Answered} answer=${answer} what="curves">
        ${(/** @type {ComparedMetricsAnswer} */ { trials: answers }) => html`
          <div class="charts">
            ${names.filter((name) => rank === "" || answers.some(({ curves }) => curves.some((curve) => nameOf(curve) === name))).map((name) => html`<${ComparedChart} key=${name} name=${name} drawn=${drawn} answers=${answers} settings=${settings} />`)}
          </div>
        `}
      <//>
    </div>
  `;
}

/**
 * What each chart draws: each trial, or each rank of each trial that has reported.
 * @typedef {{index: number, trial: TrialRow, rank: number | null, colour: string}} Drawn
 */

/** @param {TrialAnswer[]} found @param {boolean} isOfRanks @returns {Drawn[]} */
function drawnOf(found, isOfRanks) {
  const members = found.flatMap(({ trial, reporting_ranks: ranks }, index) => (isOfRanks ? ranks : [null]).map((rank) => ({ index, trial, rank })));
  return members.map((member, place) => ({ ...member, colour: seriesColour(place) }));
}

/** @param {{name: string, drawn: Drawn[], answers: MetricsAnswer[], settings: ChartSettings}} props */
function ComparedChart({ name, drawn, answers, settings }) {
  const curves = useMemo(
    () =>
      drawn.flatMap(({ index, trial, rank, colour }) =>
        (answers[index]?.curves ?? [])
          .filter((curve) => nameOf(curve) === name && (rank === null || curve.rank === rank))
          .map((series) => ({
            label: rank === null ? String(trial.trial_id) : `${trial.trial_id}, rank ${rank}`,
            colour,
            series,
            origin: settings.axis === "time" ? trial.created : 0,
          })),
      ),
    [answers, drawn, name, settings.axis],
  );
  return html`<${Chart} title=${titleWithRank(name, curves)} curves=${curves} height=${250} ...${settings} />`;
}

/** A row for each value, first those in which the trials differ. @param {{found: TrialAnswer[]}} props */
function Values({ found }) {
  const columns = found.map(({ trial, series }) => ({
    ...Object.fromEntries([
      ["experiment", trial.experiment_name],
      ["state", trial.state],
      ["steps", formatValue(trial.steps_completed)],
      ["commit", trial.environment?.git_commit.slice(0, 12) ?? ""],
    ]),
    ...Object.fromEntries(flattened(trial.hparams)),
    ...Object.fromEntries(series.map((one) => [nameOf(one), formatValue(one.last)])),
  }));
  const names = [...new Set(columns.flatMap((column) => Object.keys(column)))];
  const differs = (/** @type {string} */ name) => new Set(columns.map((column) => own(column, name) ?? "")).size > 1;
  const ordered = [...names.filter(differs), ...names.filter((name) => !differs(name))];
  const save = () => {
    const head = ["", ...found.map(({ trial }) => trial.trial_id)];
    saveFile("comparison.csv", csvText([head, ...ordered.map((name) => [name, ...columns.map((column) => own(column, name) ?? "")])]), "text/csv");
  };
  return html`
    <section class="card">
      <div class="row"><p class="soft">Rows in which the trials differ come first and are marked.</p><span class="spread"></span><button class="small" onClick=${save}>Save as CSV</button></div>
      <div class="scroll-x" tabindex="0" role="region" aria-label="Values">
        <table class="plain-table">
          <thead><tr><th>Name</th>${found.map(({ trial }) => html`<th><a href=${linkTo(["trials", trial.trial_id])}>${trial.trial_id}</a></th>`)}</tr></thead>
          <tbody>
            ${ordered.map((name) => html`<tr class=${differs(name) ? "differs" : ""}><th scope="row">${name}</th>${columns.map((column) => html`<td>${own(column, name) ?? html`<span class="soft">–</span>`}</td>`)}</tr>`)}
          </tbody>
        </table>
      </div>
    </section>
  `;
}

/** @param {{found: TrialAnswer[]}} props */
function Configurations({ found }) {
  const [left, setLeft] = useSetting("left", String(found[0].trial.trial_id));
  const [right, setRight] = useSetting("right", String(found[found.length - 1].trial.trial_id));
  const answer = useAnswers(
    [left, right].map((id) => address(["trials", id, "configuration"])),
    once,
  );
  const choices = found.map(({ trial }) => [String(trial.trial_id), labelOf(trial)]);
  return html`
    <div class="toolbar">
      <${Select} label="From" values=${choices} value=${left} onChange=${setLeft} />
      <${Select} label="to" values=${choices} value=${right} onChange=${setRight} />
    </div>
    <div class="pane">
      <${Answered} answer=${answer} what="configurations">
        ${(/** @type {ConfigurationAnswer[]} */ [from, to]) => html`<${Difference} left=${textOf(from)} right=${textOf(to)} leftName=${`trial ${left}`} rightName=${`trial ${right}`} />`}
      <//>
    </div>
  `;
}

const textOf = (/** @type {ConfigurationAnswer} */ { yaml, hparams }) =>
  `# Hyperparameters of the trial\n${flattened(hparams ?? {})
    .map(([name, value]) => `${name}: ${value}`)
    .join("\n")}\n\n${yaml}`;
const labelOf = (/** @type {TrialRow} */ trial) => `${trial.trial_id} ${trial.experiment_name}`;
