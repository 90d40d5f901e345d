/** One of a few values, as buttons side by side. */

import { html } from "../preact.js";
import { withText } from "./field.js";

/** @param {{label: string, values: [string, string][], value: string, onChange: (value: string) => void}} props */
export function Choice({ label, values, value, onChange }) {
  return html`
    <div class="choice" role="group" aria-label=${label}>
      ${values.map(([name, text]) => html`<button aria-pressed=${name === value} onClick=${() => onChange(name)}>${text}</button>`)}
    </div>
  `;
}

/** A switch with its words. @param {{label: string, isOn: boolean, onChange: (isOn: boolean) => void, title?: string}} props */
export function Switch({ label, isOn, onChange, title = "" }) {
  return html`
    <label class="switch" title=${title}>
      <input type="checkbox" checked=${isOn} onChange=${(/** @type {Event} */ { target }) => onChange(/** @type {HTMLInputElement} */ (target).checked)} />${label}
    </label>
  `;
}

/** One of many values. @param {{label: string, values: [string, string][], value: string, onChange: (value: string) => void}} props */
export function Select({ label, values, value, onChange }) {
  return html`
    <label class="select">
      <span>${label}</span>
      <select aria-label=${label} value=${value} onChange=${withText(onChange)}>
        ${values.map(([name, text]) => html`<option value=${name} selected=${name === value}>${text}</option>`)}
      </select>
    </label>
  `;
}
