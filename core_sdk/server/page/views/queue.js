import { html } from "../preact.js"; export const Queue = () => html`<p>Queue</p>`;
