/** How far something is, as a bar and a number. */

import { html } from "../preact.js";

/** @param {{part: number}} props From 0 to 1. */
export const Progress = ({ part }) => html`
  <span class="bar" role="progressbar" aria-label="Progress" aria-valuemin="0" aria-valuemax="100" aria-valuenow=${Math.floor(part * 100)}>
    <i style=${{ width: `${part * 100}%` }}></i>
  </span>
  <span class="percent">${Math.floor(part * 100)}%</span>
`;
