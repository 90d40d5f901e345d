/** The configuration and the code of an experiment, also beside those of another one. */

import { html } from "../preact.js";
import { Choice } from "../parts/choice.js";
import { Difference } from "../parts/difference.js";
import { Answered, Empty, Failure, Loading } from "../parts/states.js";
import { counted, formatSize } from "../parts/text.js";
import { address } from "../state/api.js";
import { useAnswer, useAnswers } from "../state/answers.js";
import { useSetting } from "../state/place.js";
import { saveFile } from "../parts/saving.js";
import { Card, flattened } from "./facts.js";

const never = () => false;

/** @param {{experimentId: number, hparams?: any}} props */
export function Code({ experimentId, hparams = null }) {
  const [shown, setShown] = useSetting("show", "configuration");
  const [other, setOther] = useSetting("with");
  const otherId = /^[1-9]\d*$/.test(other) ? Number(other) : null;
  return html`
    <div class="toolbar">
      <${Choice} label="Show" values=${[["configuration", "Configuration"], ["code", "Code"]]} value=${shown} onChange=${setShown} />
      <label class="select"><span>Differences to experiment</span><input type="text" inputmode="numeric" class="ranks" placeholder="ID" aria-label="ID of another experiment" value=${other} onInput=${(/** @type {any} */ event) => setOther(event.target.value.trim())} /></label>
    </div>
    <div class="pane">
      ${shown === "code"
        ? otherId
          ? html`<${FilesOfTwo} experimentIds=${[otherId, experimentId]} />`
          : html`<${Files} experimentId=${experimentId} />`
        : otherId
          ? html`<${ConfigurationsOfTwo} experimentIds=${[otherId, experimentId]} />`
          : html`<${Configuration} experimentId=${experimentId} hparams=${hparams} />`}
    </div>
  `;
}

function Configuration({ experimentId, hparams }) {
  const answer = useAnswer(address(["experiments", experimentId, "configuration"]), { follows: never });
  const [form, setForm] = useSetting("form", "completed");
  return html`
    <${Answered} answer=${answer} what="the configuration">
      ${(/** @type {any} */ { yaml, original }) => html`
        ${hparams && html`<${Card} title="Hyperparameters of the trial" facts=${flattened(hparams)} none="It has none." />`}
        ${!yaml
          ? html`<${Empty} title="No configuration."><p>The trials were started by hand. An experiment that is submitted has one.</p><pre><code>core-sdk experiment create config.yaml .</code></pre><//>`
          : html`
              <section class="card">
                <div class="row">
                  <h2>Configuration</h2>
                  ${original && html`<${Choice} label="Form" values=${[["completed", "With defaults"], ["original", "As written"], ["difference", "What the defaults add"]]} value=${form} onChange=${setForm} />`}
                  <span class="spread"></span>
                  <button class="small" onClick=${() => saveFile(`experiment-${experimentId}.yaml`, form === "original" ? original : yaml, "text/yaml")}>Save</button>
                </div>
                ${form === "difference" && original
                  ? html`<${Difference} left=${original} right=${yaml} leftName="as written" rightName="with defaults" />`
                  : html`<pre class="source" tabindex="0" aria-label="Configuration">${form === "original" ? original || yaml : yaml}</pre>`}
              </section>
            `}
      `}
    <//>
  `;
}

function ConfigurationsOfTwo({ experimentIds }) {
  const answer = useAnswers(experimentIds.map((/** @type {number} */ id) => address(["experiments", id, "configuration"])), { follows: never });
  return html`
    <${Answered} answer=${answer} what="configurations">
      ${([left, right]) => html`<${Difference} left=${left.yaml} right=${right.yaml} leftName=${`experiment ${experimentIds[0]}`} rightName=${`experiment ${experimentIds[1]}`} />`}
    <//>
  `;
}

function Files({ experimentId }) {
  const answer = useAnswer(address(["experiments", experimentId, "code"]), { follows: never });
  const [name, setName] = useSetting("file");
  return html`
    <${Answered} answer=${answer} what="the code">
      ${(/** @type {any} */ { files, sha256 }) =>
        sha256 === null
          ? html`<${Empty} title="No code was kept.">The trials ran where they were started. An experiment that is submitted with a directory keeps its code.<//>`
          : html`
              <div class="files">
                <nav class="card" aria-label="Files">
                  <h2>${counted(files.length, "file")}</h2>
                  ${files.map((/** @type {any} */ file) => html`<button class="quiet file" aria-current=${file.name === (name || files[0]?.name) ? "true" : undefined} onClick=${() => setName(file.name)}><span>${file.name}</span><span class="soft">${formatSize(file.size_bytes)}</span></button>`)}
                </nav>
                <section class="card"><${File} experimentId=${experimentId} name=${name || files[0]?.name} /></section>
              </div>
            `}
    <//>
  `;
}

function File({ experimentId, name }) {
  const answer = useAnswer(name ? address(["experiments", experimentId, "code", "file"], { name }) : null, { follows: never });
  if (!name) return html`<p class="soft">It has no files.</p>`;
  if (answer.error) return html`<${Failure} error=${answer.error} />`;
  if (answer.value === undefined || answer.isLoading) return html`<${Loading} what=${name} />`;
  const { text, size_bytes: size } = answer.value;
  return html`
    <div class="row"><h2>${name}</h2><span class="spread"></span>${text !== null && html`<button class="small" onClick=${() => saveFile(name.split("/").at(-1), text, "text/plain")}>Save</button>`}</div>
    ${text === null ? html`<p class="soft">It is no text, or larger than 1 MiB: ${formatSize(size)}.</p>` : html`<pre class="source numbered" tabindex="0" aria-label=${name}>${text.split("\n").map((/** @type {string} */ line) => html`<span>${line}${"\n"}</span>`)}</pre>`}
  `;
}

/** The files in which the code of two experiments differs. */
function FilesOfTwo({ experimentIds }) {
  const answer = useAnswers(experimentIds.map((/** @type {number} */ id) => address(["experiments", id, "code"])), { follows: never });
  return html`
    <${Answered} answer=${answer} what="code">
      ${([left, right]) => {
        if (left.sha256 === null || right.sha256 === null) return html`<${Empty} title="No code was kept of one of them." />`;
        if (left.sha256 === right.sha256) return html`<p class="soft">Their code is the same.</p>`;
        const sizes = new Map(left.files.map((/** @type {any} */ { name, size_bytes: size }) => [name, size]));
        const names = [...new Set([...sizes.keys(), ...right.files.map((/** @type {any} */ { name }) => name)])].sort();
        return names.map((name) => html`<${FileOfTwo} key=${name} name=${name} experimentIds=${experimentIds} files=${[left.files, right.files]} />`);
      }}
    <//>
  `;
}

function FileOfTwo({ name, experimentIds, files }) {
  const exists = files.map((/** @type {any[]} */ of) => of.some((file) => file.name === name));
  const urls = experimentIds.filter((/** @type {number} */ _, /** @type {number} */ index) => exists[index]).map((/** @type {number} */ id) => address(["experiments", id, "code", "file"], { name }));
  const { value } = useAnswers(urls, { follows: never });
  if (value === undefined) return null;
  const texts = exists.map((isThere, index) => (isThere ? (value[exists[0] ? index : 0].text ?? "") : ""));
  if (texts[0] === texts[1]) return null;
  return html`<section class="card"><h2 class="mono">${name}</h2><${Difference} left=${texts[0]} right=${texts[1]} leftName=${`experiment ${experimentIds[0]}`} rightName=${`experiment ${experimentIds[1]}`} /></section>`;
}
