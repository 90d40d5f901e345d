/** The models of the registry. */

import { html, useState } from "../../preact.js";
import { Switch } from "../../parts/choice.js";
import { Dialog } from "../../parts/dialog.js";
import { isEnter, withText } from "../../parts/field.js";
import { Answered, Empty } from "../../parts/states.js";
import { counted, formatAge, formatTime } from "../../parts/text.js";
import { say, sayFailure } from "../../parts/toast.js";
import { act, address } from "../../state/api.js";
import { useAnswer } from "../../state/answers.js";
import { useMayChange } from "../../state/home.js";
import { linkTo, useSetting } from "../../state/place.js";
/** @import { ModelRow, ModelsAnswer } from "api" */

export function Models() {
  const [archived, setArchived] = useSetting("archived");
  const [isMaking, setIsMaking] = useState(false);
  const answer = useAnswer(address(["models"], { archived: archived || null }));
  return html`
    <section class="view" aria-label="Models">
      <div class="pane">
        <div class="row">
          <h1>Models</h1>
          <span class="spread"></span>
          <${Switch} label="Archived ones too" isOn=${archived !== ""} onChange=${(/** @type {boolean} */ isOn) => setArchived(isOn ? "true" : "")} />
          ${useMayChange()({}) && html`<button class="primary" onClick=${() => setIsMaking(true)}>New model …</button>`}
        </div>
        <${Answered} answer=${answer} what="the models">
          ${(/** @type {ModelsAnswer} */ { models }) =>
            models.length === 0
              ? html`<${Empty} title="No models."><p>A checkpoint that is registered as the version of a model is never deleted by collection. The checkpoints of a trial have a button for it.</p><//>`
              : html`<${Table} models=${models} />`}
        <//>
      </div>
      ${isMaking && html`<${NewModel} onClose=${() => setIsMaking(false)} onDone=${answer.reload} />`}
    </section>
  `;
}

/** @param {{models: ModelRow[]}} props */
const Table = ({ models }) => html`
  <div class="card scroll-x" tabindex="0" role="region" aria-label="Models of the registry">
    <table class="plain-table stacks">
      <thead><tr><th>Model</th><th>Newest</th><th class="number">Versions</th><th>Labels</th><th>Changed</th><th>Description</th></tr></thead>
      <tbody>
        ${models.map(
          (model) => html`
            <tr>
              <td data-name="Model"><a href=${linkTo(["models", model.model_id])}>${model.name}</a> ${model.is_archived && html`<span class="chip">archived</span>`}</td>
              <td data-name="Newest">${model.newest && html`<a href=${linkTo(["models", model.model_id, model.newest])}>version ${model.newest}</a>`}</td>
              <td class="number" data-name="Versions">${model.num_versions}</td>
              <td data-name="Labels">${model.labels.map((label) => html`<span class="chip" title=${label}>${label}</span>`)}</td>
              <td data-name="Changed" title=${formatTime(model.updated)}>${formatAge(model.updated)}</td>
              <td data-name="Description">${model.description}</td>
            </tr>
          `,
        )}
      </tbody>
    </table>
    <p class="soft spaced" role="status">${counted(models.length, "model")}</p>
  </div>
`;

/** @param {{onClose: () => void, onDone: () => void}} props */
function NewModel({ onClose, onDone }) {
  const [name, setName] = useState("");
  const [description, setDescription] = useState("");
  const make = async () => {
    try {
      say((await act(["models", "actions", "create"], { name: name.trim(), description })).message);
      onClose();
      onDone();
    } catch (error) {
      sayFailure(error);
    }
  };
  return html`
    <${Dialog} title="New model" onClose=${onClose}>
      <div class="dialog-body">
        <input type="text" aria-label="Name of the model" placeholder="Name" autofocus value=${name} onInput=${withText(setName)} onKeyDown=${(/** @type {KeyboardEvent} */ event) => isEnter(event) && name.trim() && make()} />
        <input type="text" aria-label="Description of the model" placeholder="Description" value=${description} onInput=${withText(setDescription)} />
      </div>
      <div class="dialog-feet">
        <button onClick=${onClose}>Cancel</button>
        <button class="primary" disabled=${!name.trim()} onClick=${make}>Make it</button>
      </div>
    <//>
  `;
}
