/** Facts about a thing: names with values. */

import { html } from "../preact.js";
import { firstOf, formatValue } from "../parts/text.js";
/** @import { ComponentChildren } from "preact" */

/** Names with values, of which those without one are left out. @param {{title: string, facts: [string, ComponentChildren][], none?: string, total?: number}} props `total` is the number of all, if `facts` are the first of them. */
export function Card({ title, facts, none = "", total = 0 }) {
  const known = facts.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return html`
    <section class="card">
      <h2>${title} ${total > facts.length && html`<span class="soft">the first ${firstOf(facts.length, total)}</span>`}</h2>
      ${known.length === 0 ? html`<p class="soft">${none}</p>` : html`<dl class="facts">${known.map(([name, value]) => html`<dt>${name}</dt><dd class="tabular">${value}</dd>`)}</dl>`}
    </section>
  `;
}

/** Nested values under dotted names, as text. @param {object} value @returns {[string, string][]} */
export function flattened(value, prefix = "") {
  return Object.entries(value).flatMap(([name, item]) =>
    item !== null && typeof item === "object" && !Array.isArray(item) && Object.keys(item).length
      ? flattened(item, `${prefix}${name}.`)
      : [/** @type {[string, string]} */ ([`${prefix}${name}`, formatValue(item)])],
  );
}
