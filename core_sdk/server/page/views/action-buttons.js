/** Buttons for what can be done to the given rows. */

import { html, useState } from "../preact.js";
import { Dialog } from "../parts/dialog.js";
import { useAnswer } from "../state/answers.js";
import { address } from "../state/api.js";
import { ACTIONS, Doing, idOf, perform } from "./actions.js";

/**
 * @param {{kind: import("./actions.js").Kind, rows: any[], onDone: () => void, withLabels?: boolean}} props
 */
export function ActionButtons({ kind, rows, onDone, withLabels = kind !== "checkpoints" }) {
  const [asked, setAsked] = useState(/** @type {import("./actions.js").Action | null} */ (null));
  const [isLabelling, setIsLabelling] = useState(false);
  const home = useAnswer(address(["home"]), { follows: ({ isMaster }) => isMaster }).value;
  if (home && !home.can_act) return html`<span class="soft">This page can only read.</span>`;
  const start = async (/** @type {import("./actions.js").Action} */ action) => {
    const fitting = rows.filter(action.fits);
    if (action.question) return setAsked(action);
    await perform(kind, action, fitting.map((row) => idOf(kind, row)));
    onDone();
  };
  return html`
    ${ACTIONS[kind]
      .filter(({ fits }) => rows.some(fits))
      .map((action) => html`<button key=${action.name} class=${action.isDangerous ? "dangerous" : ""} onClick=${() => start(action)}>${action.label}${action.question ? " …" : ""}</button>`)}
    ${withLabels && html`<button onClick=${() => setIsLabelling(true)}>Label …</button>`}
    ${asked && html`<${Doing} kind=${kind} action=${asked} rows=${rows.filter(asked.fits)} onClose=${() => setAsked(null)} onDone=${onDone} />`}
    ${isLabelling && html`<${LabelDialog} kind=${kind} rows=${rows} onClose=${() => setIsLabelling(false)} onDone=${onDone} />`}
  `;
}

function LabelDialog({ kind, rows, onClose, onDone }) {
  const [text, setText] = useState("");
  const common = [...new Set(rows.flatMap((/** @type {any} */ { labels }) => labels))];
  const change = async (/** @type {{add?: string[], remove?: string[]}} */ body) => {
    const action = { name: "label", label: "Label", done: "labels changed", fits: () => true };
    await perform(kind, action, rows.map((/** @type {any} */ row) => idOf(kind, row)), body);
    onClose();
    onDone();
  };
  const add = () => change({ add: text.split(",").map((label) => label.trim()).filter(Boolean) });
  return html`
    <${Dialog} title="Labels" onClose=${onClose}>
      <div class="dialog-body">
        <input
          type="text"
          aria-label="New labels"
          placeholder="New label, another one"
          autofocus
          value=${text}
          onInput=${(/** @type {any} */ event) => setText(event.target.value)}
          onKeyDown=${(/** @type {KeyboardEvent} */ event) => event.key === "Enter" && text.trim() && add()}
        />
        ${common.length > 0 &&
        html`<div class="labels">${common.map((label) => html`<span class="chip">${label}<button class="quiet small" aria-label=${`Remove ${label}`} onClick=${() => change({ remove: [label] })}>✕</button></span>`)}</div>`}
      </div>
      <div class="dialog-feet">
        <button onClick=${onClose}>Cancel</button>
        <button class="primary" disabled=${!text.trim()} onClick=${add}>Add</button>
      </div>
    <//>
  `;
}
