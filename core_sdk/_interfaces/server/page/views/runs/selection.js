/** What can be done with the chosen rows of the table. */

import { html } from "../../preact.js";
import { counted } from "../../parts/text.js";
import { changeSettings, linkTo, usePlace } from "../../state/place.js";
import { ActionButtons } from "../action-buttons.js";
/** @import { Kind, Row } from "../actions.js" */

/** @param {{kind: Kind, runs: Row[], onClear: () => void, onHide?: () => void, onDone: () => void}} props */
export function SelectionBar({ kind, runs, onClear, onHide, onDone }) {
  const trials = runs.map(({ trial_id: id }) => id).join(",");
  return html`
    <div class="selection" role="toolbar" aria-label="Chosen rows">
      <b>${counted(runs.length, kind.slice(0, -1))}</b>
      ${kind === "trials" && html`<a class="button primary" href=${linkTo(["compare"], { trials, group: usePlace().query.get("group") })}>Compare</a>`}
      <${ActionButtons} kind=${kind} rows=${runs} onDone=${onDone} />
      ${kind === "trials" && runs.length === 1 && html`<button title="Every chart has its curve beside the others" onClick=${() => changeSettings({ baseline: trials })}>Baseline</button>`}
      ${onHide && html`<button onClick=${onHide}>Hide</button>`}
      <span class="spread"></span>
      <button class="quiet" onClick=${onClear}>Clear</button>
    </div>
  `;
}
