/** A whole number that is changed by Enter or by leaving the field; Escape leaves it as it was. */

import { html, useState } from "../preact.js";
import { isEnter, withText } from "./field.js";

/**
 * @param {object} props
 * @param {string} props.label What a screen reader calls it.
 * @param {number | null} props.value
 * @param {number} props.min
 * @param {number} [props.max]
 * @param {string} [props.none] What is shown where there is no number; without it there must be one.
 * @param {(value: number | null) => void} props.onCommit
 */
export function NumberField({ label, value, min, max = 1e9, none = "", onCommit }) {
  const [draft, setDraft] = useState(/** @type {string | null} */ (null));
  const shown = value === null ? "" : String(value);
  const commit = () => {
    const text = (draft ?? shown).trim();
    const isPossible = text === "" ? none !== "" : /^\d+$/.test(text) && Number(text) >= min && Number(text) <= max;
    if (isPossible && text !== shown) onCommit(text === "" ? null : Number(text));
    setDraft(null);
  };
  return html`
    <input
      type="text"
      inputmode="numeric"
      class="short number"
      aria-label=${label}
      placeholder=${none}
      value=${draft ?? shown}
      onInput=${withText(setDraft)}
      onBlur=${commit}
      onKeyDown=${(/** @type {KeyboardEvent} */ event) => {
        if (isEnter(event)) commit();
        if (event.key === "Escape") setDraft(null);
      }}
    />
  `;
}
