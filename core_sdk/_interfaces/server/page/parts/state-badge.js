/** The state of a trial, an experiment or a checkpoint: a sign and a word, since colour alone says nothing to some. */

import { html } from "../preact.js";

/** @type {Record<string, string>} */
const SIGNS = {
  ACTIVE: "●",
  QUEUED: "◌",
  PAUSED: "❚❚",
  COMPLETED: "✓",
  CANCELED: "⊘",
  ERROR: "✕",
  DELETED: "⊘",
  PARTIALLY_DELETED: "◐",
};

/** @param {{state: string, reason?: string}} props */
export function StateBadge({ state, reason = "" }) {
  return html`
    <span class=${`state state-${state.toLowerCase()}`} title=${reason || state}>
      <i aria-hidden="true">${SIGNS[state] ?? "●"}</i>${words(state)}
    </span>
  `;
}

const words = (/** @type {string} */ state) => state[0] + state.slice(1).toLowerCase().replaceAll("_", " ");
