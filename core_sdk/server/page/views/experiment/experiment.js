import { html } from "../../preact.js"; export const Experiment = () => html`<p>Experiment</p>`;
