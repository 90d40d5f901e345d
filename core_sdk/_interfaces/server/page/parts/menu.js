/** A button that opens a list of actions. */

import { html, useEffect, useLayoutEffect, useRef, useState } from "../preact.js";

/**
 * @typedef {object} MenuItem
 * @property {string} label
 * @property {() => void} onSelect
 * @property {boolean} [isDangerous]
 * @property {string} [unavailable] Why it cannot be done now.
 */

/**
 * @param {object} props
 * @param {string} props.label What a screen reader calls it.
 * @param {string} props.text What the button shows.
 * @param {MenuItem[]} props.items
 * @param {string} [props.kind] A class of the button.
 */
export function Menu({ label, text, items, kind = "quiet small" }) {
  const [isOpen, setIsOpen] = useState(false);
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const button = useRef(/** @type {HTMLButtonElement | null} */ (null));
  const list = useRef(/** @type {HTMLDivElement | null} */ (null));
  useLayoutEffect(() => {
    if (list.current === null || button.current === null) return;
    placeBelow(list.current, button.current);
    // Before the next key is pressed.
    itemsOf(list.current)[0]?.focus();
  }, [isOpen]);
  useEffect(() => {
    if (!isOpen) return undefined;
    const closeOutside = (/** @type {Event} */ event) => {
      if (!box.current?.contains(/** @type {Node} */ (event.target))) setIsOpen(false);
    };
    addEventListener("pointerdown", closeOutside);
    addEventListener("scroll", closeOutside, true);
    return () => {
      removeEventListener("pointerdown", closeOutside);
      removeEventListener("scroll", closeOutside, true);
    };
  }, [isOpen]);
  const close = () => {
    setIsOpen(false);
    button.current?.focus();
  };
  return html`
    <div class="menu" ref=${box} onKeyDown=${(/** @type {KeyboardEvent} */ event) => list.current && move(event, list.current, close)}>
      <button
        class=${kind}
        ref=${button}
        aria-haspopup="menu"
        aria-expanded=${isOpen}
        aria-label=${label}
        title=${label}
        onClick=${() => setIsOpen(!isOpen)}
      >
        ${text}
      </button>
      ${
        isOpen &&
        html`
        <div class="menu-items" role="menu" ref=${list} aria-label=${label}>
          ${items.map(
            ({ label: name, onSelect, isDangerous, unavailable }) => html`
              <button
                role="menuitem"
                tabindex="-1"
                class=${isDangerous ? "dangerous" : ""}
                aria-disabled=${Boolean(unavailable)}
                title=${unavailable ?? ""}
                onClick=${() => {
                  if (unavailable) return;
                  close();
                  onSelect();
                }}
              >
                ${name}
              </button>
            `,
          )}
        </div>
      `
      }
    </div>
  `;
}

/** The items stand over everything, since a box that scrolls would cut them off. */
function placeBelow(/** @type {HTMLElement} */ items, /** @type {HTMLElement} */ button) {
  const { left, right, top, bottom } = button.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = items;
  items.style.left = `${Math.min(right - width < 4 ? Math.max(4, left) : right - width, innerWidth - width - 4)}px`;
  items.style.top = `${bottom + 4 + height <= innerHeight ? bottom + 4 : Math.max(4, top - 4 - height)}px`;
}

/** @returns {HTMLElement[]} */
const itemsOf = (/** @type {HTMLElement} */ list) => [...list.querySelectorAll("button")];

/** Moves among the items by arrows; Escape and Tab close. */
function move(/** @type {KeyboardEvent} */ event, /** @type {HTMLElement} */ list, /** @type {() => void} */ close) {
  const items = itemsOf(list);
  const index = items.indexOf(/** @type {HTMLElement} */ (document.activeElement));
  /** @type {Record<string, () => void>} */
  const keys = {
    ArrowDown: () => items[(index + 1) % items.length].focus(),
    ArrowUp: () => items[(index - 1 + items.length) % items.length].focus(),
    Home: () => items[0].focus(),
    End: () => items[items.length - 1].focus(),
    Escape: close,
  };
  if (event.key === "Tab") close();
  if (!(event.key in keys)) return;
  event.preventDefault();
  event.stopPropagation();
  keys[event.key]();
}
