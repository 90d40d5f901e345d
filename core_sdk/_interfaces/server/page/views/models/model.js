/** A model of the registry, with its versions, or one of these. */

import { html } from "../../preact.js";
import { Answered, Empty, Remark, Title } from "../../parts/states.js";
import { StateBadge } from "../../parts/state-badge.js";
import { counted, formatAge, formatNumber, formatSize, formatTime } from "../../parts/text.js";
import { act, address } from "../../state/api.js";
import { useAnswer } from "../../state/answers.js";
import { go, linkTo } from "../../state/place.js";
import { ActionButtons } from "../action-buttons.js";
import { Card, flattened } from "../facts.js";
import { Notes } from "../notes.js";
import { Way } from "../way.js";
/** @import { ModelVersionsAnswer, VersionAnswer } from "api" */

/** @param {{id: string, version: string}} props */
export function Model({ id, version }) {
  const answer = useAnswer(address(["models", id]));
  const title = version ? `Version ${version} of model ${id}` : `Model ${id}`;
  return html`
    <section class="view" aria-label=${title}>
      ${answer.value === undefined && html`<${Title} text=${title} />`}
      <${Answered} answer=${answer} what=${`model ${id}`}>
        ${(/** @type {ModelVersionsAnswer} */ found) => {
          const one = found.versions.find((each) => String(each.version) === version);
          if (one) return html`<${Version} found=${found} version=${one} onDone=${answer.reload} />`;
          return version
            ? html`<${Title} text=${title} /><${Empty} title="There is no such version."><a href=${linkTo(["models", id])}>The model</a><//>`
            : html`<${Whole} found=${found} onDone=${answer.reload} />`;
        }}
      <//>
    </section>
  `;
}

/** @param {{found: ModelVersionsAnswer, onDone: () => void}} props */
function Whole({ found: { model, versions }, onDone }) {
  const metrics = [...new Set(versions.flatMap(({ checkpoint }) => Object.keys(checkpoint?.metrics ?? {})))].slice(0, 4);
  return html`
    <header class="subject">
      <div class="subject-name">
        <a href=${linkTo(["models"])}>Models</a><span class="soft" aria-hidden="true">›</span>
        <h1 title=${model.name}>${model.name}</h1>
        ${model.is_archived && html`<span class="chip">archived</span>`}
        ${model.labels.map((label) => html`<span class="chip" title=${label}>${label}</span>`)}
      </div>
      <div class="subject-actions"><${ActionButtons} kind="models" rows=${[{ ...model, state: "" }]} onDone=${onDone} onDeleted=${() => go(linkTo(["models"]))} /></div>
      <div class="subject-facts soft">
        <span>${counted(versions.length, "version")}</span>
        <span title=${formatTime(model.created)}>created ${formatAge(model.created)}</span>
        <span title=${formatTime(model.updated)}>changed ${formatAge(model.updated)}</span>
      </div>
    </header>
    <div class="pane">
      ${
        versions.length === 0
          ? html`<${Empty} title="No versions."><p>The checkpoints of a trial have a button that makes one of them a version.</p><//>`
          : html`
            <div class="card scroll-x" tabindex="0" role="region" aria-label="Versions">
              <table class="plain-table stacks">
                <thead><tr><th>Version</th><th>Name</th><th class="number">Trial</th><th class="number">Steps</th>${metrics.map((name) => html`<th class="number">${name}</th>`)}<th>Checkpoint</th><th>Registered</th></tr></thead>
                <tbody>
                  ${versions.map(
                    ({ version, name, checkpoint, created }) => html`
                      <tr>
                        <td data-name="Version"><a href=${linkTo(["models", model.model_id, version])}>version ${version}</a></td>
                        <td data-name="Name">${name}</td>
                        <td class="number" data-name="Trial">${checkpoint && html`<a href=${linkTo(["trials", checkpoint.trial_id])}>${checkpoint.trial_id}</a>`}</td>
                        <td class="number" data-name="Steps">${checkpoint && formatNumber(checkpoint.steps_completed)}</td>
                        ${metrics.map((metric) => html`<td class="number" data-name=${metric}>${formatNumber(checkpoint?.metrics[metric])}</td>`)}
                        <td data-name="Checkpoint">${checkpoint ? html`<${StateBadge} state=${checkpoint.state} />` : "unknown"}</td>
                        <td data-name="Registered" title=${formatTime(created)}>${formatAge(created)}</td>
                      </tr>
                    `,
                  )}
                </tbody>
              </table>
            </div>
          `
      }
      <${Notes} title="Description" notes=${model.description} save=${(/** @type {string} */ description, /** @type {string} */ before) => act(["models", model.model_id, "actions", "change"], { description, description_before: before })} onSaved=${onDone} />
      ${Object.keys(model.metadata).length > 0 && html`<div class="cards flat spaced"><${Card} title="Metadata" facts=${flattened(model.metadata)} /></div>`}
    </div>
  `;
}

/** @param {{found: ModelVersionsAnswer, version: VersionAnswer, onDone: () => void}} props */
function Version({ found: { model }, version, onDone }) {
  const { checkpoint } = version;
  const onDeleted = () => {
    onDone();
    go(linkTo(["models", model.model_id]));
  };
  const path = /** @type {const} */ (["models", model.model_id, "versions", version.version, "actions", "change"]);
  return html`
    <header class="subject">
      <div class="subject-name">
        <a href=${linkTo(["models", model.model_id])}>${model.name}</a><span class="soft" aria-hidden="true">›</span>
        <h1>Version ${version.version}</h1>
        <b>${version.name}</b>
        ${model.labels.map((label) => html`<span class="chip" title=${label}>${label}</span>`)}
      </div>
      <div class="subject-actions">
        <${ActionButtons} kind="versions" withLabels=${false} rows=${[{ state: "", model_id: model.model_id, version: version.version }]} onDone=${onDone} onDeleted=${onDeleted} />
      </div>
      <div class="subject-facts soft"><span title=${formatTime(version.created)}>registered ${formatAge(version.created)}</span></div>
    </header>
    <div class="pane">
      ${checkpoint === null && html`<${Remark}>Nothing is known of its checkpoint ${version.storage_id} any more: the trial was deleted.<//>`}
      ${
        checkpoint &&
        html`
          <div class="cards flat">
            <${Card} title="Checkpoint" facts=${[
              [
                "Checkpoint",
                html`<a class="mono" href=${linkTo(["trials", checkpoint.trial_id, "checkpoints"], { checkpoint: version.storage_id })}>${version.storage_id}</a>`,
              ],
              ["Trial", html`<a href=${linkTo(["trials", checkpoint.trial_id])}>${checkpoint.trial_id}</a>`],
              ["State", html`<${StateBadge} state=${checkpoint.state} />`],
              ["Steps", formatNumber(checkpoint.steps_completed)],
              ["Stored", formatTime(checkpoint.time)],
              ["Size", formatSize(checkpoint.size_bytes)],
              ["Storage", checkpoint.storage],
            ]} />
            <${Card} title="Metrics" facts=${Object.entries(checkpoint.metrics).map(([name, value]) => [name, formatNumber(value)])} none="Its attempt has validated nothing at its step." />
            <${Card} title="Metadata" facts=${flattened({ ...checkpoint.metadata, ...version.metadata })} none="None." />
          </div>
          <${Way} storageId=${version.storage_id} />
        `
      }
      <${Notes} notes=${version.notes} save=${(/** @type {string} */ notes, /** @type {string} */ before) => act(path, { notes, notes_before: before })} onSaved=${onDone} />
    </div>
  `;
}
