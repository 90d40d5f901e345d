/** Who waits for slots, and who is on them. */

import { html } from "../preact.js";
import { Answered, Empty, Remark } from "../parts/states.js";
import { StateBadge } from "../parts/state-badge.js";
import { address } from "../state/api.js";
import { useAnswer } from "../state/answers.js";
import { linkTo } from "../state/place.js";

export function Queue() {
  const queue = useAnswer(address(["queue"]));
  const slots = useAnswer(address(["slots"]));
  return html`
    <section class="view" aria-label="Queue and slots">
      <div class="pane">
        <h1>Queue and slots</h1>
        ${queue.value?.has_master === false && html`<${Remark}>No master runs. <code>core-sdk experiment create</code> starts one; what is shown is what the home says by itself.<//>`}
        <section class="card spaced">
          <h2>Queue</h2>
          <${Answered} answer=${queue} what="the queue">
            ${(/** @type {any} */ { experiments }) =>
              experiments.length === 0
                ? html`<${Empty} title="No experiment waits or runs." />`
                : html`
                    <div class="scroll-x" tabindex="0" role="region" aria-label="Queue">
                      <table class="plain-table">
                        <thead><tr><th class="number">ID</th><th>Experiment</th><th>State</th><th class="number">Priority</th><th>Running</th><th class="number">Waiting</th><th>Problem</th></tr></thead>
                        <tbody>
                          ${experiments.map(
                            (/** @type {any} */ one) => html`
                              <tr>
                                <td class="number">${one.experiment_id}</td>
                                <td><a href=${linkTo(["experiments", one.experiment_id])}>${one.name}</a></td>
                                <td><${StateBadge} state=${one.state} /></td>
                                <td class="number">${one.priority}</td>
                                <td>${one.running.map((/** @type {number} */ id) => html`<a class="chip" href=${linkTo(["trials", id])}>${id}</a> `)}</td>
                                <td class="number">${one.num_waiting}</td>
                                <td>${one.problem}</td>
                              </tr>
                            `,
                          )}
                        </tbody>
                      </table>
                    </div>
                  `}
          <//>
        </section>
        <section class="card spaced">
          <h2>Slots of this machine</h2>
          <${Answered} answer=${slots} what="the slots">
            ${(/** @type {any} */ value) => html`<ul class="slots">${value.slots.map((/** @type {any} */ slot) => html`<${Slot} key=${slot.slot} slot=${slot} />`)}</ul>`}
          <//>
        </section>
      </div>
    </section>
  `;
}

const Slot = ({ slot: { slot, gpu, experiment_id: experiment, trial_id: trial } }) => html`
  <li class=${trial === null ? "" : "busy"}>
    <b>${gpu === null ? `CPU ${slot}` : `GPU ${gpu}`}</b>
    ${trial === null
      ? html`<span class="soft">free</span>`
      : html`<span><a href=${linkTo(["trials", trial])}>trial ${trial}</a> of <a href=${linkTo(["experiments", experiment])}>experiment ${experiment}</a></span>`}
  </li>
`;
