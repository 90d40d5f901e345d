/** The slots of the machine, the experiments that wait for them, and in which order they get them. */

import { html } from "../preact.js";
import { NumberField } from "../parts/number-field.js";
import { Progress } from "../parts/progress.js";
import { Answered, Empty, Failure, Remark } from "../parts/states.js";
import { StateBadge } from "../parts/state-badge.js";
import { counted, formatAge, formatTime } from "../parts/text.js";
import { say, sayFailure } from "../parts/toast.js";
import { act, address } from "../state/api.js";
import { useAnswer } from "../state/answers.js";
import { useMayChange } from "../state/home.js";
import { linkTo } from "../state/place.js";
import { ActionMenu } from "./action-buttons.js";
import { runsOf } from "./runs/trials.js";
/** @import { ExperimentSettingsBody, OccupiedSlot, QueueAnswer, QueuedExperiment, RunsAnswer, SlotsAnswer } from "api" */

const MAX_CHIPS = 8;
const MAX_BY_HAND = 100;

export function Queue() {
  const queue = useAnswer(address(["queue"]));
  const slots = useAnswer(address(["slots"]));
  const running = useAnswer(
    address(["runs"], {
      where: "state = ACTIVE",
      columns: ["id", "experiment", "experiment_id", "started", "progress", "status"],
      limit: MAX_BY_HAND,
    }),
    { follows: ({ trials }) => trials.length > 0 },
  );
  return html`
    <section class="view" aria-label="Queue and slots">
      <div class="pane">
        <div class="row">
          <h1>Queue and slots</h1>
          <span class="soft" role="status">${queue.value && slots.value && summary(queue.value, slots.value)}</span>
        </div>
        ${queue.value?.has_master === false && html`<${Remark}>No master runs, so nothing waits for slots. <code>core-sdk experiment create</code> starts one.<//>`}
        <${Answered} answer=${slots} what="the slots">
          ${(/** @type {SlotsAnswer} */ { slots: all, clusters }) => html`
            <section class="card spaced">
              <h2>Slots of this machine</h2>
              <${Slots} slots=${all.filter(({ cluster }) => cluster === "")} />
            </section>
            ${clusters.map((cluster) => html`<${Cluster} key=${cluster.address} cluster=${cluster} slots=${all.filter((slot) => slot.cluster === cluster.address)} />`)}
          `}
        <//>
        <section class="card spaced">
          <h2>Queue</h2>
          <${Answered} answer=${queue} what="the queue">
            ${(/** @type {QueueAnswer} */ { experiments }) => html`<${Experiments} experiments=${experiments} onDone=${queue.reload} />`}
          <//>
        </section>
        ${running.error && html`<${Failure} error=${running.error} onRetry=${running.reload} />`}
        ${running.value && queue.value && html`<${ByHand} running=${running.value} experiments=${queue.value.experiments} />`}
      </div>
    </section>
  `;
}

function summary(/** @type {QueueAnswer} */ { experiments }, /** @type {SlotsAnswer} */ { slots }) {
  const numBusy = slots.filter(isBusy).length;
  const numWaiting = experiments.reduce((sum, one) => sum + one.num_waiting, 0);
  return `${numBusy} of ${counted(slots.length, "slot")} busy · ${counted(numWaiting, "trial")} waiting`;
}

const isBusy = (/** @type {OccupiedSlot} */ { trial_id: trial, user, is_filled: isFilled }) => trial !== null || user !== "" || isFilled;

/**
 * The nodes of a Ray cluster, where Ray alone knows which slots of its node a trial has; or Slurm, which shows no slots.
 * @param {{cluster: import("api").Cluster, slots: OccupiedSlot[]}} props
 */
function Cluster({ cluster: { address: place, problem }, slots }) {
  const nodes = new Map(slots.map(({ node }) => [node, slots.filter((slot) => slot.node === node)]));
  return html`
    <section class="card spaced">
      <h2>${place === "slurm" ? "Slurm" : html`Slots of the Ray cluster <span class="mono">${place}</span>`}</h2>
      ${problem && html`<p class="reason">${problem}</p>`}
      ${nodes.size === 0 && !problem && html`<p class="soft">${place === "slurm" ? "It decides itself on which nodes its jobs run." : "It has not told its nodes yet."}</p>`}
      ${[...nodes].map(
        ([node, of]) => html`
          <h3>${node} <span class="soft">${of.filter(isBusy).length} of ${counted(of.length, "slot")} busy</span></h3>
          <${Slots} slots=${of} />
        `,
      )}
    </section>
  `;
}

/** @param {{slots: OccupiedSlot[]}} props */
const Slots = ({ slots }) => html`<ul class="slots">${slots.map((slot) => html`<${Slot} key=${slot.slot} slot=${slot} />`)}</ul>`;

/** @param {{slot: OccupiedSlot}} props */
const Slot = ({ slot }) => html`
  <li class=${isBusy(slot) ? "busy" : ""}>
    <b>${slot.gpu === null ? `${slot.device} ${slot.slot}` : slot.device}</b>
    <${Holder} slot=${slot} />
  </li>
`;

/** @param {{slot: OccupiedSlot}} props */
function Holder({ slot: { experiment_id: experiment, trial_id: trial, home, user, since, is_filled: isFilled } }) {
  const when = since === null ? "" : `since ${formatTime(since)}`;
  if (isFilled) return html`<span class="soft">a program without a slot</span>`;
  if (trial === null) return html`<span class="soft" title=${when}>${user || "free"}</span>`;
  if (home) return html`<span class="soft" title=${when}>trial ${trial} of ${home}</span>`;
  const link = html`<a href=${linkTo(["trials", trial])}>trial ${trial}</a>`;
  return html`<span title=${when}>${link}${experiment !== null && html` of <a href=${linkTo(["experiments", experiment])}>experiment ${experiment}</a>`}</span>`;
}

/** @param {{experiments: QueuedExperiment[], onDone: () => void}} props */
function Experiments({ experiments, onDone }) {
  if (experiments.length === 0) {
    return html`<${Empty} title="No experiment waits or runs."><p>One that is submitted gets slots in the order of its priority.</p><pre><code>core-sdk experiment create config.yaml .</code></pre><//>`;
  }
  const hasProblem = experiments.some(({ problem }) => problem);
  return html`
    <div class="scroll-x" tabindex="0" role="region" aria-label="Queue">
      <table class="plain-table centred stacks">
        <thead>
          <tr>
            <th class="number">Turn</th><th>Experiment</th><th>State</th><th>Progress</th><th>Running</th><th class="number">Waiting</th>
            <th title="1 to 99; smaller numbers are served first">Priority</th><th title="How many slots it may use at a time">Slots at most</th>${hasProblem && html`<th>Problem</th>`}<th><span class="unseen">Actions</span></th>
          </tr>
        </thead>
        <tbody>
          ${experiments.map((one, index) => html`<${Row} key=${one.experiment_id} one=${one} turn=${index + 1} hasProblem=${hasProblem} onDone=${onDone} />`)}
        </tbody>
      </table>
    </div>
  `;
}

/** @param {{one: QueuedExperiment, turn: number, hasProblem: boolean, onDone: () => void}} props */
function Row({ one, turn, hasProblem, onDone }) {
  const { experiment_id: id, name, running } = one;
  const canAct = useMayChange()({});
  const change = async (/** @type {ExperimentSettingsBody} */ settings) => {
    try {
      say((await act(["experiments", id, "actions", "settings"], settings)).message);
    } catch (error) {
      sayFailure(error);
    }
    onDone();
  };
  return html`
    <tr>
      <td class="number" data-name="Turn">${turn}</td>
      <td data-name="Experiment"><a href=${linkTo(["experiments", id])}>${name || "new"}</a> <span class="soft">${id}</span></td>
      <td data-name="State"><${StateBadge} state=${one.state} /></td>
      <td data-name="Progress">${one.progress !== null && html`<${Progress} part=${one.progress} />`}</td>
      <td data-name="Running">
        <span class="labels">
          ${running.slice(0, MAX_CHIPS).map((trial) => html`<a class="chip" href=${linkTo(["trials", trial])}>${trial}</a>`)}
          ${running.length > MAX_CHIPS && html`<a class="soft" href=${linkTo(["experiments", id, "trials"], { where: "state = ACTIVE" })}>and ${running.length - MAX_CHIPS} more</a>`}
          ${running.length === 0 && html`<span class="soft">none</span>`}
        </span>
      </td>
      <td class="number" data-name="Waiting">${one.num_waiting}</td>
      <td data-name="Priority">${!canAct ? one.priority : html`<${NumberField} label=${`Priority of experiment ${id}`} value=${one.priority} min=${1} max=${99} onCommit=${(/** @type {number} */ priority) => change({ priority })} />`}</td>
      <td data-name="Slots at most">${!canAct ? (one.max_slots ?? "all") : html`<${NumberField} label=${`Most slots of experiment ${id}`} value=${one.max_slots} min=${0} none="all" onCommit=${(/** @type {number | null} */ most) => change({ max_slots: most ?? -1 })} />`}</td>
      ${hasProblem && html`<td class="reason" data-name="Problem">${one.problem}</td>`}
      <td class="number"><${ActionMenu} kind="experiments" rows=${[{ ...one, labels: [], search: {} }]} label=${`Actions on experiment ${id}`} onDone=${onDone} /></td>
    </tr>
  `;
}

/**
 * Trials that run without the master: somebody has started them in a terminal.
 * @param {{running: RunsAnswer, experiments: QueuedExperiment[]}} props
 */
function ByHand({ running, experiments }) {
  const ofMaster = new Set(experiments.flatMap((one) => one.running));
  const trials = runsOf(running)
    .map(({ values }) => values)
    .filter(({ id }) => !ofMaster.has(id));
  if (trials.length === 0) return null;
  return html`
    <section class="card spaced">
      <h2>Started by hand</h2>
      <div class="scroll-x" tabindex="0" role="region" aria-label="Trials that were started by hand">
        <table class="plain-table centred stacks">
          <thead><tr><th class="number">Trial</th><th>Experiment</th><th>Progress</th><th>Started</th><th>Status</th></tr></thead>
          <tbody>
            ${trials.map(
              ({ id, experiment, experiment_id: experimentId, progress, started, status }) => html`
                <tr key=${id}>
                  <td class="number" data-name="Trial"><a href=${linkTo(["trials", id])}>${id}</a></td>
                  <td data-name="Experiment"><a href=${linkTo(["experiments", experimentId])}>${experiment}</a></td>
                  <td data-name="Progress">${progress !== null && html`<${Progress} part=${progress} />`}</td>
                  <td data-name="Started" title=${formatTime(started)}>${formatAge(started)}</td>
                  <td data-name="Status">${status}</td>
                </tr>
              `,
            )}
          </tbody>
        </table>
      </div>
    </section>
  `;
}
