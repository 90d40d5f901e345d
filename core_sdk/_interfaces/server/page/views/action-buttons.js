/** Buttons for what can be done to the given rows. */

import { html, useState } from "../preact.js";
import { Dialog } from "../parts/dialog.js";
import { Menu } from "../parts/menu.js";
import { useMayChange, useDoes } from "../state/home.js";
import { splitNames } from "../state/place.js";
import { ACTIONS, Doing, idOf, perform } from "./actions.js";
import { isEnter, withText } from "../parts/field.js";
/** @import { TrialLabelBody } from "api" */
/** @import { Action, Kind, Row } from "./actions.js" */

/**
 * @typedef {{kind: Kind, rows: Row[], onDone: () => void, onDeleted?: () => void}} Subject `onDeleted` is called in place of `onDone`.
 */

/** @param {Subject & {withLabels?: boolean}} props */
export function ActionButtons({ kind, rows, onDone, onDeleted, withLabels = kind !== "checkpoints" }) {
  const { own, choices, start, dialog } = useActions({ kind, rows, onDone, onDeleted });
  const [isLabelling, setIsLabelling] = useState(false);
  if (own.length === 0) return html`<span class="soft">This page can only read${rows.some(({ home }) => home) && " what belongs to others"}.</span>`;
  return html`
    ${choices.map((action) => html`<button key=${action.name} class=${action.isDangerous ? "dangerous" : ""} onClick=${() => start(action)}>${nameOf(action)}</button>`)}
    ${withLabels && html`<button onClick=${() => setIsLabelling(true)}>Label …</button>`}
    ${dialog}
    ${isLabelling && html`<${LabelDialog} kind=${kind} rows=${own} onClose=${() => setIsLabelling(false)} onDone=${onDone} />`}
  `;
}

/** The same as a menu, for the row of a table. @param {Subject & {label: string}} props */
export function ActionMenu({ kind, rows, onDone, label }) {
  const { choices, start, dialog } = useActions({ kind, rows, onDone });
  if (choices.length === 0) return dialog;
  const items = choices.map((action) => ({ label: nameOf(action), isDangerous: action.isDangerous, onSelect: () => start(action) }));
  return html`<${Menu} label=${label} text="⋯" items=${items} />${dialog}`;
}

/** The rows that may be changed, what can be done to them, how it is begun, and the dialog that asks before it. @param {Subject} subject */
function useActions({ kind, rows, onDone, onDeleted }) {
  const [asked, setAsked] = useState(/** @type {Action | null} */ (null));
  const own = rows.filter(useMayChange());
  const does = useDoes();
  const start = async (/** @type {Action} */ action) => {
    if (action.question) return setAsked(action);
    await perform(
      kind,
      action,
      own.filter(action.fits).map((row) => idOf(kind, row)),
    );
    onDone();
  };
  const dialog =
    asked &&
    html`<${Doing} kind=${kind} action=${asked} rows=${own.filter(asked.fits)} onClose=${() => setAsked(null)} onDone=${onDone} onDeleted=${onDeleted} />`;
  return {
    choices: ACTIONS[kind].filter(({ name, fits, isForOne }) => does(`${kind}/${name}`) && own.some(fits) && !(isForOne && own.length > 1)),
    own,
    start,
    dialog,
  };
}

const nameOf = (/** @type {Action} */ { label, question }) => (question ? `${label} …` : label);

/** @param {Subject & {onClose: () => void}} props */
function LabelDialog({ kind, rows, onClose, onDone }) {
  const [text, setText] = useState("");
  const common = [...new Set(rows.flatMap(({ labels = [] }) => labels))];
  const change = async (/** @type {TrialLabelBody} */ body) => {
    const action = { name: "label", label: "Label", done: "labels changed", fits: () => true };
    await perform(
      kind,
      action,
      rows.map((row) => idOf(kind, row)),
      body,
    );
    onClose();
    onDone();
  };
  const add = () =>
    change({
      add: splitNames(text)
        .map((label) => label.trim())
        .filter(Boolean),
    });
  return html`
    <${Dialog} title="Labels" onClose=${onClose}>
      <div class="dialog-body">
        <input
          type="text"
          aria-label="New labels"
          placeholder="New label, another one"
          title="A comma separates labels; \\, is a comma within one"
          autofocus
          value=${text}
          onInput=${withText(setText)}
          onKeyDown=${(/** @type {KeyboardEvent} */ event) => isEnter(event) && text.trim() && add()}
        />
        ${
          common.length > 0 &&
          html`<div class="labels">${common.map((label) => html`<span class="chip">${label}<button class="quiet small" aria-label=${`Remove ${label}`} onClick=${() => change({ remove: [label] })}>✕</button></span>`)}</div>`
        }
      </div>
      <div class="dialog-feet">
        <button onClick=${onClose}>Cancel</button>
        <button class="primary" disabled=${!text.trim()} onClick=${add}>Add</button>
      </div>
    <//>
  `;
}
