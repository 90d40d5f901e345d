/** What is known of a trial besides its curves. */

import { html } from "../../preact.js";
import { StateBadge } from "../../parts/state-badge.js";
import { formatNumber, formatSize, formatTime } from "../../parts/text.js";
import { act, address } from "../../state/api.js";
import { linkTo } from "../../state/place.js";
import { Card, flattened } from "../facts.js";
import { Notes } from "../notes.js";
import { Time } from "../time.js";
import { Requests } from "./requests.js";
/** @import { AlertRow, RankRow, TrialAnswer, WriterRow } from "api" */
/** @import { Change } from "../../state/events.js" */

/** @param {{found: TrialAnswer, onDone: () => void}} props */
export function Overview({ found, onDone }) {
  const { trial, series, num_found: numFound, alerts, command, working_directory: directory } = found;
  const { environment } = trial;
  return html`
    <div class="pane">
    <div class="packed">
      <${Card} title="Last values" total=${numFound} facts=${series.map(({ group, name, last }) => [`${group}.${name}`, formatNumber(last, 6)])} none="Nothing was reported." />
      <${Card} title="Hyperparameters" total=${found.num_hparams} facts=${flattened(trial.hparams)} none="It has none." />
      <${Card}
        title="Run"
        facts=${[
          ["State", html`<${StateBadge} state=${trial.state} /> ${trial.reason}`],
          ["Started", formatTime(trial.created)],
          ["Ended", trial.ended && formatTime(trial.ended)],
          ["Attempts", trial.num_attempts],
          ["Command", command?.join(" ")],
          ["Directory", directory],
          [
            "Newest checkpoint",
            trial.latest_checkpoint && html`<a href=${linkTo(["trials", trial.trial_id, "checkpoints"])}>${trial.latest_checkpoint}</a>`,
          ],
          ["Continued from", trial.continued_from],
          ["Fetched from", trial.fetched_from],
          ["Varies", trial.parent && html`<a href=${linkTo(["trials", trial.parent])}>trial ${trial.parent}</a>`],
          ["Hypothesis", trial.hypothesis],
          ["Verdict", [trial.verdict, trial.verdict_reason].filter(Boolean).join(": ")],
          ["Seed", trial.seed],
        ]}
      />
      <${Requests} trialId=${trial.trial_id} />
      <${Time} address=${address(["trials", trial.trial_id, "time"])} follows=${(/** @type {Change} */ { trials }) => trials.includes(trial.trial_id)} about=${`time ${trial.trial_id}`} />
      ${
        environment &&
        html`
        <${Card}
          title="Machine"
          facts=${[
            ["Host", environment.host],
            ["Processors", environment.num_cpus],
            ["Memory", formatSize(environment.memory_bytes)],
            ["GPUs", environment.gpus.join(", ")],
            [
              "Commit",
              environment.git_commit
                ? `${environment.git_commit.slice(0, 12)}${environment.git_is_dirty ? ", with changes" : ""}`
                : environment.git_problem,
            ],
            ["Python", environment.python],
            ...Object.entries(environment.packages),
          ]}
        />
      `
      }
      ${trial.metadata && html`<${Card} title="Metadata" total=${found.num_metadata} facts=${flattened(trial.metadata)} />`}
      ${trial.ranks.length > 0 && html`<${Ranks} ranks=${trial.ranks} />`}
      ${trial.writers.length > 0 && html`<${Writers} writers=${trial.writers} />`}
      ${alerts.length > 0 && html`<${Alerts} alerts=${alerts} />`}
    </div>
    <${Notes} notes=${trial.notes} author=${trial.notes_author} home=${trial.home} save=${(/** @type {string} */ notes, /** @type {string} */ before) => act(["trials", trial.trial_id, "actions", "change"], { notes, notes_before: before })} onSaved=${onDone} />
    </div>
  `;
}

/** @param {{alerts: AlertRow[]}} props */
const Alerts = ({ alerts }) => html`
  <section class="card">
    <h2>Alerts</h2>
    <table class="plain-table">
      <thead><tr><th class="number">Step</th><th>When</th><th>Level</th><th>Alert</th></tr></thead>
      <tbody>
        ${alerts.map(
          (alert) => html`
            <tr class=${alert.is_superseded ? "soft" : ""}>
              <td class="number">${alert.steps_completed}</td><td>${formatTime(alert.time)}</td><td>${alert.level}</td><td><b>${alert.title}</b> ${alert.description}</td>
            </tr>
          `,
        )}
      </tbody>
    </table>
  </section>
`;

/** @param {{writers: WriterRow[]}} props The programs that report in addition to the trial's own. */
const Writers = ({ writers }) => html`
  <section class="card">
    <h2>Writers</h2>
    <table class="plain-table">
      <thead><tr><th>Writer</th><th>Host</th><th>State</th></tr></thead>
      <tbody>
        ${writers.map((writer) => html`<tr><td>${writer.name}</td><td>${writer.host}</td><td>${stateOf(writer)}</td></tr>`)}
      </tbody>
    </table>
  </section>
`;

function stateOf(/** @type {WriterRow} */ { state, reason, last_time }) {
  const since = state === "UNKNOWN" ? `; not seen since ${formatTime(last_time)}` : "";
  return reason ? `${state}: ${reason}${since}` : state;
}

/** @param {{ranks: RankRow[]}} props */
function Ranks({ ranks }) {
  return html`
    <section class="card">
      <h2>Ranks</h2>
      <table class="plain-table">
        <thead><tr><th class="number">Rank</th><th>Host</th><th class="number">Progress</th></tr></thead>
        <tbody>
          ${ranks.map(({ rank, host, progress }) => html`<tr><td class="number">${rank}</td><td>${host}</td><td class="number">${progress == null ? "" : `${Math.floor(progress * 100)}%`}</td></tr>`)}
        </tbody>
      </table>
    </section>
  `;
}
