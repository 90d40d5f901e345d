/** A window over the page that holds the focus until it is answered. */

import { html, useEffect, useRef } from "../preact.js";
/** @import { ComponentChildren } from "preact" */

/**
 * @param {object} props
 * @param {string} props.title
 * @param {() => void} props.onClose
 * @param {ComponentChildren} props.children
 * @param {boolean} [props.isWide]
 */
export function Dialog({ title, onClose, children, isWide = false }) {
  const element = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => {
    const opener = /** @type {HTMLElement | null} */ (document.activeElement);
    element.current?.showModal();
    return () => opener?.focus();
  }, []);
  return html`
    <dialog
      ref=${element}
      class=${isWide ? "wide" : ""}
      aria-label=${title}
      onClose=${onClose}
      onClick=${(/** @type {MouseEvent} */ event) => event.target === element.current && onClose()}
    >
      <div class="dialog-head">
        <h2>${title}</h2>
        <button class="quiet" aria-label="Close" onClick=${onClose}>✕</button>
      </div>
      ${children}
    </dialog>
  `;
}
