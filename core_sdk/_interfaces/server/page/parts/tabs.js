/** Tabs, each of which is a link, so that the browser's history and a colleague know them. */

import { html } from "../preact.js";

/** @param {{label: string, tabs: {name: string, title: string, href: string}[], current: string}} props */
export function Tabs({ label, tabs, current }) {
  return html`
    <nav class="tabs" aria-label=${label}>
      ${tabs.map(({ name, title, href }) => html`<a href=${href} aria-current=${name === current ? "page" : undefined}>${title}</a>`)}
    </nav>
  `;
}
