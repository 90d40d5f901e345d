/** Short words about what an action has done, which a screen reader says and which vanish by themselves. */

import { html, useEffect, useState } from "../preact.js";
/** @import { Problem } from "./states.js" */

/** @typedef {{text: string, kind: "done" | "failed", id: number}} Toast */

const SHOWN_MS = 7000;
const ADDED = "toastadded";

/** @param {string} text @param {"done" | "failed"} [kind] */
export function say(text, kind = "done") {
  dispatchEvent(new CustomEvent(ADDED, { detail: { text, kind, id: Math.random() } }));
}

/** @param {unknown} error */
export function sayFailure(error) {
  const { message, hint } = /** @type {Problem} */ (error);
  say([message, hint].filter(Boolean).join(" "), "failed");
}

export function Toasts() {
  const [toasts, setToasts] = useState(/** @type {Toast[]} */ ([]));
  useEffect(() => {
    const add = (/** @type {Event} */ event) => {
      const { detail } = /** @type {CustomEvent<Toast>} */ (event);
      setToasts((all) => [...all, detail].slice(-4));
      setTimeout(() => setToasts((all) => all.filter(({ id }) => id !== detail.id)), SHOWN_MS);
    };
    addEventListener(ADDED, add);
    return () => removeEventListener(ADDED, add);
  }, []);
  return html`
    <div class="toasts" role="status" aria-live="polite">
      ${toasts.map(({ id, text, kind }) => html`<div key=${id} class=${`toast toast-${kind}`}>${text}</div>`)}
    </div>
  `;
}
