import { html } from "../preact.js"; export const Compare = () => html`<p>Compare</p>`;
