/** The configuration and the code of a trial or an experiment, also next to another one's. */

import { html, useState } from "../preact.js";
import { Choice } from "../parts/choice.js";
import { ChangedLines, Difference } from "../parts/difference.js";
import { NumberField } from "../parts/number-field.js";
import { saveFile } from "../parts/saving.js";
import { Source } from "../parts/source.js";
import { Answered, Empty, Failure, Loading, Remark } from "../parts/states.js";
import { counted, formatSize } from "../parts/text.js";
import { address } from "../state/api.js";
import { once, useAnswer, useAnswers } from "../state/answers.js";
import { useSetting } from "../state/place.js";
import { Card, flattened } from "./facts.js";
import { FileLink } from "./file-link.js";
import { withText } from "../parts/field.js";
/** @import { Address, CodeAnswer, CodeDifference, CodeDifferencesAnswer, ConfigurationAnswer, ExperimentAnswer, FileAnswer, SourceDifferencesAnswer, TrialAnswer } from "api" */
/** @import { ComponentChildren } from "preact" */

const MAX_LISTED = 500;

/** @typedef {{kind: "trial" | "experiment", id: number, experimentId: number, hparams: Record<string, unknown> | null, numHparams?: number}} Subject */

/** @param {{subject: Subject}} props */
export function Code({ subject }) {
  const [shown, setShown] = useSetting("show", "configuration");
  const [other, setOther] = useSetting("with");
  const otherId = /^[1-9]\d*$/.test(other) && Number(other) !== subject.id ? Number(other) : null;
  return html`
    <div class="toolbar">
      <${Choice} label="Show" values=${[
        ["configuration", "Configuration"],
        ["code", "Code"],
      ]} value=${shown} onChange=${setShown} />
      <label class="select">
        <span>Differences to ${subject.kind}</span>
        <${NumberField} label=${`ID of another ${subject.kind}`} value=${otherId} min=${1} none="ID" onCommit=${(/** @type {number | null} */ id) => setOther(id === null ? "" : String(id))} />
      </label>
      ${otherId !== null && html`<button class="quiet small" onClick=${() => setOther("")}>Without differences</button>`}
    </div>
    <div class="pane">
      ${
        otherId !== null
          ? html`<${BesideAnother} key=${otherId} subject=${subject} otherId=${otherId} shown=${shown} />`
          : shown === "code"
            ? html`<${Files} experimentId=${subject.experimentId} />`
            : html`<${Configuration} subject=${subject} />`
      }
    </div>
  `;
}

/** @param {Subject["kind"]} kind @param {number} id @returns {Address<TrialAnswer | ExperimentAnswer>} */
const addressOf = (kind, id) => (kind === "trial" ? address(["trials", id]) : address(["experiments", id]));

/**
 * The same view of two subjects, once it is known what the other one is.
 * @param {{subject: Subject, otherId: number, shown: string}} props
 */
function BesideAnother({ subject, otherId, shown }) {
  const answer = useAnswer(addressOf(subject.kind, otherId), once);
  return html`
    <${Answered} answer=${answer} what=${`${subject.kind} ${otherId}`}>
      ${(/** @type {TrialAnswer | ExperimentAnswer} */ found) => {
        const trial = "trial" in found ? found.trial : null;
        const numHparams = "trial" in found ? found.num_hparams : 0;
        const other = { kind: subject.kind, id: otherId, experimentId: trial?.experiment_id ?? otherId, hparams: trial?.hparams ?? null, numHparams };
        return shown === "code"
          ? html`<${FilesOfTwo} left=${other} right=${subject} />`
          : html`<${ConfigurationsOfTwo} left=${other} right=${subject} />`;
      }}
    <//>
  `;
}

/** @param {{subject: Subject}} props */
function Configuration({ subject: { experimentId, hparams, numHparams } }) {
  const answer = useAnswer(address(["experiments", experimentId, "configuration"]), once);
  const [form, setForm] = useSetting("form", "completed");
  return html`
    ${hparams && html`<${Card} title="Hyperparameters of the trial" total=${numHparams} facts=${flattened(hparams)} none="It has none." />`}
    <${Answered} answer=${answer} what="the configuration">
      ${(/** @type {ConfigurationAnswer} */ { yaml, original }) =>
        !yaml
          ? html`<${Empty} title="No configuration."><p>The trials were started by hand. An experiment that is submitted has one.</p><pre><code>core-sdk experiment create config.yaml .</code></pre><//>`
          : html`
              <section class="card ${hparams ? "spaced" : ""}">
                <div class="row">
                  <h2>Configuration</h2>
                  ${
                    original &&
                    html`<${Choice} label="Form" values=${[
                      ["completed", "With defaults"],
                      ["original", "As written"],
                      ["difference", "What the defaults add"],
                    ]} value=${form} onChange=${setForm} />`
                  }
                  <span class="spread"></span>
                  <button class="small" onClick=${() => saveFile(`experiment-${experimentId}.yaml`, form === "original" ? original : yaml, "text/yaml")}>Save</button>
                </div>
                ${
                  form === "difference" && original
                    ? html`<${Difference} left=${original} right=${yaml} leftName="as written" rightName="with defaults" />`
                    : html`<${Source} text=${(form === "original" && original) || yaml} label="Configuration" />`
                }
              </section>
            `}
    <//>
  `;
}

/** @param {{left: Subject, right: Subject}} props */
function ConfigurationsOfTwo({ left, right }) {
  const answer = useAnswers(
    [left, right].map(({ experimentId }) => address(["experiments", experimentId, "configuration"])),
    once,
  );
  return html`
    ${right.hparams && html`<${HyperparametersOfTwo} left=${left} right=${right} />`}
    <${Answered} answer=${answer} what="configurations">
      ${(/** @type {ConfigurationAnswer[]} */ [of, to]) => html`
        <section class="card spaced">
          <h2>Configuration</h2>
          ${
            !of.yaml && !to.yaml
              ? html`<p class="soft">The trials of both were started by hand, without a configuration.</p>`
              : html`<${Difference} left=${of.yaml} right=${to.yaml} leftName=${nameOf(left)} rightName=${nameOf(right)} />`
          }
        </section>
      `}
    <//>
  `;
}

/** Hyperparameters side by side, first those that differ. @param {{left: Subject, right: Subject}} props */
function HyperparametersOfTwo({ left, right }) {
  const [ofLeft, ofRight] = [left, right].map(({ hparams }) => new Map(flattened(hparams ?? {})));
  const isPartial = (left.numHparams ?? 0) > ofLeft.size || (right.numHparams ?? 0) > ofRight.size;
  const names = [...new Set([...ofLeft.keys(), ...ofRight.keys()])];
  const differs = (/** @type {string} */ name) => ofLeft.get(name) !== ofRight.get(name);
  const ordered = [...names.filter(differs), ...names.filter((name) => !differs(name))];
  const cell = (/** @type {Map<string, string>} */ values, /** @type {string} */ name) => values.get(name) ?? html`<span class="soft">–</span>`;
  return html`
    <section class="card">
      <h2>Hyperparameters <span class="soft">${counted(names.filter(differs).length, "difference")}</span></h2>
      ${isPartial && html`<${Remark}>Only the first 1,000 hyperparameters of each trial are compared.<//>`}
      <div class="scroll-x" tabindex="0" role="region" aria-label="Hyperparameters of both">
        <table class="plain-table">
          <thead><tr><th>Name</th><th>${nameOf(left)}</th><th>${nameOf(right)}</th></tr></thead>
          <tbody>${ordered.map((name) => html`<tr class=${differs(name) ? "differs" : ""}><th scope="row">${name}</th><td>${cell(ofLeft, name)}</td><td>${cell(ofRight, name)}</td></tr>`)}</tbody>
        </table>
      </div>
    </section>
  `;
}

/** @param {{experimentId: number}} props */
function Files({ experimentId }) {
  const answer = useAnswer(address(["experiments", experimentId, "code"]), once);
  const [name, setName] = useSetting("file");
  return html`
    <${Answered} answer=${answer} what="the code">
      ${(/** @type {CodeAnswer} */ { files, sha256 }) =>
        sha256 === null
          ? html`<${NoCode} />`
          : html`
              <${FileList}
                title=${counted(files.length, "file")}
                files=${files.map((file) => ({ name: file.name, remark: formatSize(file.size_bytes) }))}
                chosen=${name || files[0]?.name}
                onChoose=${setName}
                action=${html`<${FileLink} kind="button small" path=${["experiments", experimentId, "code", "archive"]}>Save all<//>`}
              >
                <${File} experimentId=${experimentId} name=${name || files[0]?.name} />
              <//>
            `}
    <//>
  `;
}

const NoCode = () =>
  html`<${Empty} title="No code was kept."><p>The trials ran where they were started. An experiment that is submitted with a directory keeps its code.</p><pre><code>core-sdk experiment create config.yaml .</code></pre><//>`;

/**
 * A list of files next to the chosen one.
 * @param {object} props
 * @param {string} props.title
 * @param {{name: string, remark: string}[]} props.files
 * @param {string | undefined} props.chosen
 * @param {(name: string) => void} props.onChoose
 * @param {ComponentChildren} [props.action]
 * @param {ComponentChildren} props.children
 */
function FileList({ title, files, chosen, onChoose, action = null, children }) {
  const [search, setSearch] = useState("");
  const found = files.filter(({ name }) => name.toLowerCase().includes(search.toLowerCase()));
  return html`
    <div class="files">
      <nav class="card" aria-label="Files">
        <div class="row"><h2>${title}</h2><span class="spread"></span>${action}</div>
        ${files.length > 12 && html`<input type="search" class="search" placeholder="Find a file  /" aria-label="Find a file" value=${search} onInput=${withText(setSearch)} />`}
        ${found.slice(0, MAX_LISTED).map(
          ({ name, remark }) => html`
            <button key=${name} class="quiet file" title=${name} aria-current=${name === chosen ? "true" : undefined} onClick=${() => onChoose(name)}><span><span class="soft">${name.slice(0, name.lastIndexOf("/") + 1)}</span>${name.slice(name.lastIndexOf("/") + 1)}</span><span class="soft">${remark}</span></button>
          `,
        )}
        ${found.length === 0 && html`<p class="soft">No file has such a name.</p>`}
        ${found.length > MAX_LISTED && html`<p class="soft">And ${(found.length - MAX_LISTED).toLocaleString("en-US")} more, which the search finds.</p>`}
      </nav>
      <section class="card">${children}</section>
    </div>
  `;
}

/** @param {{experimentId: number, name: string | undefined}} props */
function File({ experimentId, name }) {
  const answer = useAnswer(name ? address(["experiments", experimentId, "code", "file"], { name }) : null, once);
  if (!name) return html`<p class="soft">It has no files.</p>`;
  if (answer.error) return html`<${Failure} error=${answer.error} onRetry=${answer.reload} />`;
  if (answer.value === undefined || answer.isLoading) return html`<${Loading} what=${name} />`;
  const { text, size_bytes: size } = answer.value;
  return html`
    <div class="row"><h2 class="mono">${name}</h2><span class="spread"></span>${text !== null && html`<button class="small" onClick=${() => saveFile(name.slice(name.lastIndexOf("/") + 1), text, "text/plain")}>Save</button>`}</div>
    ${text === null ? html`<p class="soft">${notShown(size)}</p>` : html`<${Source} text=${text} label=${name} />`}
  `;
}

/** The files in which the code of two experiments, or of two trials, differs. @param {{left: Subject, right: Subject}} props */
export function FilesOfTwo({ left, right }) {
  const answer = useAnswer(address(["experiments", right.experimentId, "code", "differences"], { other: left.experimentId }), once);
  const [name, setName] = useSetting("file");
  return html`
    <${Answered} answer=${answer} what="differences">
      ${(/** @type {CodeDifferencesAnswer} */ { files, sha256, other_sha256: otherSha256 }) => {
        if ((sha256 === null || otherSha256 === null) && right.kind === "trial") return html`<${SourcesOfTwo} left=${left} right=${right} />`;
        if (sha256 === null || otherSha256 === null) {
          const without = [sha256 === null && nameOf(right), otherSha256 === null && nameOf(left)].filter(Boolean);
          return html`<${Empty} title=${`No code was kept of ${without.join(" and ")}.`} />`;
        }
        if (files.length === 0) return html`<${Remark}>Their code is the same, byte for byte.<//>`;
        const chosen = files.find((file) => file.name === name) ?? files[0];
        return html`
          <${FileList} title=${`${counted(files.length, "file")} differ${files.length === 1 ? "s" : ""}`} files=${files.map((file) => ({ name: file.name, remark: changeOf(file) }))} chosen=${chosen.name} onChoose=${setName}>
            <${FileOfTwo} key=${chosen.name} file=${chosen} left=${left} right=${right} />
          <//>
        `;
      }}
    <//>
  `;
}

/** The lines in which the sources differ that `core-sdk run` has kept of two trials. @param {{left: Subject, right: Subject}} props */
function SourcesOfTwo({ left, right }) {
  const answer = useAnswer(address(["trials", right.id, "code", "differences"], { other: left.id }), once);
  const [name, setName] = useSetting("file");
  return html`
    <${Answered} answer=${answer} what="differences">
      ${(/** @type {SourceDifferencesAnswer} */ { files, notes, num_left_out: numLeftOut }) => {
        const remarks = html`
          ${notes.map((note) => html`<${Remark}>${note}<//>`)}
          ${numLeftOut > 0 && html`<${Remark}>${counted(numLeftOut, "more line")} of these files ${numLeftOut === 1 ? "differs" : "differ"}.<//>`}
        `;
        if (files === null) return html`<${Empty} title="Their code cannot be compared."><p>${notes.join(" ")}</p><//>`;
        const chosen = files.find((file) => file.name === name) ?? files[0];
        if (chosen === undefined) return html`${remarks}<${Remark}>The code that was kept of both is the same.<//>`;
        const title = `${counted(files.length, "file")} differ${files.length === 1 ? "s" : ""}`;
        return html`
          ${remarks}
          <${FileList} title=${title} files=${files.map((file) => ({ name: file.name, remark: "" }))} chosen=${chosen.name} onChoose=${setName}>
            <h2 class="mono">${chosen.name}</h2>
            <${ChangedLines} lines=${chosen.lines} leftName=${nameOf(left)} rightName=${nameOf(right)} />
          <//>
        `;
      }}
    <//>
  `;
}

const changeOf = (/** @type {CodeDifference} */ { size_bytes: size, other_size_bytes: otherSize }) =>
  otherSize === null ? "new" : size === null ? "gone" : "changed";

/** @param {{file: CodeDifference, left: Subject, right: Subject}} props */
function FileOfTwo({ file: { name, size_bytes: size, other_size_bytes: otherSize }, left, right }) {
  const owners = [...(otherSize !== null ? [left] : []), ...(size !== null ? [right] : [])];
  const answer = useAnswers(
    owners.map(({ experimentId }) => address(["experiments", experimentId, "code", "file"], { name })),
    once,
  );
  return html`
    <h2 class="mono">${name}</h2>
    <${Answered} answer=${answer} what=${name}>
      ${(/** @type {FileAnswer[]} */ found) => {
        if (found.some(({ text }) => text === null)) return html`<p class="soft">${notShown(Math.max(size ?? 0, otherSize ?? 0))}</p>`;
        const [of, to] = [otherSize === null ? "" : found[0].text, size === null ? "" : found[found.length - 1].text];
        return html`<${Difference} left=${of} right=${to} leftName=${nameOf(left)} rightName=${nameOf(right)} />`;
      }}
    <//>
  `;
}

const notShown = (/** @type {number} */ size) => `It is no text, or larger than 1 MiB: ${formatSize(size)}.`;
const nameOf = (/** @type {Subject} */ { kind, id }) => `${kind} ${id}`;
