/** What is seldom needed, behind a button: a box over the page, which a click elsewhere or Escape closes. */

import { html, useEffect, useRef, useState } from "../preact.js";
/** @import { ComponentChildren } from "preact" */

/** @param {{label: string, isFlat?: boolean, children: ComponentChildren}} props Flat, it has no button. */
export function Folded({ label, isFlat = false, children }) {
  const [isOpen, setIsOpen] = useState(false);
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  useEffect(() => {
    if (!isOpen) return undefined;
    const close = (/** @type {Event} */ event) => {
      const isElsewhere = event.type === "pointerdown" && !box.current?.contains(/** @type {Node} */ (event.target));
      if (isElsewhere || /** @type {KeyboardEvent} */ (event).key === "Escape") setIsOpen(false);
    };
    addEventListener("pointerdown", close);
    addEventListener("keydown", close);
    return () => {
      removeEventListener("pointerdown", close);
      removeEventListener("keydown", close);
    };
  }, [isOpen]);
  if (isFlat) return children;
  return html`
    <div class="folded" ref=${box}>
      <button aria-expanded=${isOpen} onClick=${() => setIsOpen(!isOpen)}>${label} ▾</button>
      ${isOpen && html`<div class="folded-body" role="group" aria-label=${label}>${children}</div>`}
    </div>
  `;
}

/** Returns whether the page is at most so wide; by default, as on a phone. */
export function useIsNarrow(most = 760) {
  const [query] = useState(() => matchMedia(`(max-width: ${most}px)`));
  const [isNarrow, setIsNarrow] = useState(query.matches);
  useEffect(() => {
    const update = () => setIsNarrow(query.matches);
    query.addEventListener("change", update);
    return () => query.removeEventListener("change", update);
  }, [query]);
  return isNarrow;
}
