/** The way of a checkpoint, as a picture: the attempts that led to it, from left to right. */

import { html } from "../preact.js";
import { Answered } from "../parts/states.js";
import { formatNumber } from "../parts/text.js";
import { address } from "../state/api.js";
import { once, useAnswer } from "../state/answers.js";
import { linkTo } from "../state/place.js";
/** @import { LineageAnswer, Stretch } from "api" */

/** @param {{storageId: string}} props */
export function Way({ storageId }) {
  const answer = useAnswer(address(["checkpoints", storageId, "lineage"]), once);
  return html`
    <section class="card spaced">
      <h2>How it came to be</h2>
      <${Answered} answer=${answer} what="the way of the checkpoint">
        ${(/** @type {LineageAnswer} */ { stretches, registered }) => html`
          ${registered.map(({ model_id: id, model_name: name, version }) => html`<p>It is <a href=${linkTo(["models", id, version])}>version ${version} of ${name}</a>.</p>`)}
          <ol class="way" aria-label="The attempts that led to it">${[...stretches].reverse().map((stretch) => html`<li><${OneStretch} stretch=${stretch} /></li>`)}</ol>
        `}
      <//>
    </section>
  `;
}

/** @param {{stretch: Stretch}} props */
function OneStretch({ stretch }) {
  const { trial_id: trialId, storage_id: id, git_commit: commit } = stretch;
  if (trialId === null) return html`<b>Checkpoint <span class="mono">${id}</span></b><span class="soft">of a trial that is not here any more</span>`;
  return html`
    <b><a href=${linkTo(["trials", trialId])}>Trial ${trialId}</a> ${stretch.trial_name}</b>
    <span>attempt ${stretch.attempt}, steps ${formatNumber(stretch.first_steps)} to ${formatNumber(stretch.steps_completed)}</span>
    ${commit && html`<span>commit <span class="mono" title=${commit}>${commit.slice(0, 12)}</span>${stretch.git_is_dirty ? ", with changes" : ""}</span>`}
    ${stretch.code && html`<a href=${linkTo(["experiments", stretch.experiment_id, "code"])}>code <span class="mono">${stretch.code.slice(0, 12)}</span></a>`}
    ${!commit && !stretch.code && html`<span class="soft">its code was not recorded</span>`}
    <span>checkpoint <a class="mono" href=${linkTo(["trials", trialId, "checkpoints"], { checkpoint: id })}>${id.slice(0, 14)}</a>${stretch.is_deleted ? ", deleted" : ""}</span>
  `;
}
