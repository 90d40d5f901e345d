/** What stands where there is nothing to show yet, nothing at all, too much, or an error. */

import { html } from "../preact.js";
import { useConnection } from "../state/events.js";
/** @import { ComponentChildren } from "preact" */
/** @import { Answer } from "../state/answers.js" */

/** The head of a view of which no more is known than its name. @param {{text: string}} props */
export const Title = ({ text }) => html`<header class="subject"><div class="subject-name"><h1>${text}</h1></div></header>`;

/** Grey lines in the place of what comes. @param {{what: string, numLines?: number}} props */
export function Loading({ what, numLines = 6 }) {
  return html`
    <div class="loading" role="status" aria-label=${`Loading ${what}`}>
      ${Array.from({ length: numLines }, () => html`<i></i>`)}
    </div>
  `;
}

/** There is nothing, and how there would be something. @param {{title: string, children?: ComponentChildren}} props */
export function Empty({ title, children = null }) {
  return html`<div class="empty" role="status"><h2>${title}</h2><div>${children}</div></div>`;
}

/** @typedef {{kind?: string, message: string, hint?: string}} Problem */

/** Something failed: what, and what to do. That the server is away stands once, at the top of the page. @param {{error: Problem, onRetry?: () => void}} props */
export function Failure({ error, onRetry }) {
  if (useConnection() === "interrupted" && error.kind === "unreachable" && onRetry) return html`<${Loading} what="again" />`;
  return html`
    <div class="failure" role="alert">
      <strong>${error.message}</strong>
      ${error.hint && html`<span>${error.hint}</span>`}
      ${onRetry && html`<button class="small" onClick=${onRetry}>Try again</button>`}
    </div>
  `;
}

/** A remark over a view that works, for example that some records are damaged. @param {{children: ComponentChildren}} props */
export const Remark = ({ children }) => html`<div class="remark" role="note">${children}</div>`;

/**
 * The view of an answer: what stands for it until it is there, the error, or the view itself.
 * @template T
 * @param {{answer: Answer<T>, what: string, children: (value: T) => ComponentChildren}} props
 */
export function Answered({ answer, what, children }) {
  const { value, error, reload } = answer;
  if (value === undefined) return error ? html`<${Failure} error=${error} onRetry=${reload} />` : html`<${Loading} what=${what} />`;
  // That the server does not answer stands once, in the head of the page.
  return html`${error && error.kind !== "unreachable" && html`<${Failure} error=${error} onRetry=${reload} />`}${children(value)}`;
}
