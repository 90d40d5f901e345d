import { html } from "../../preact.js"; export const Trial = () => html`<p>Trial</p>`;
