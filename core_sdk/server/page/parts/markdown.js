/** Notes in Markdown. They become elements, never markup, so nothing in them can run or load. */

import { html, useEffect, useState } from "../preact.js";
/** @import { MarkedToken, Token, Tokens } from "marked" */
/** @import { ComponentChildren } from "preact" */

/** @param {{text: string}} props */
export function Markdown({ text }) {
  const [tokens, setTokens] = useState(/** @type {Token[]} */ ([]));
  useEffect(() => {
    let isCurrent = true;
    // Few look at notes, so the library is loaded with the first one.
    import("../vendor/marked/marked.esm.js").then(({ lexer }) => isCurrent && setTokens(lexer(text)));
    return () => {
      isCurrent = false;
    };
  }, [text]);
  return html`<div class="markdown">${elementsOf(tokens)}</div>`;
}

const elementsOf = (/** @type {Token[]} */ tokens) => tokens.map((token) => elementOf(/** @type {MarkedToken} */ (token)));

/** @param {MarkedToken} token @returns {ComponentChildren} */
function elementOf(token) {
  switch (token.type) {
    case "paragraph":
      return html`<p>${elementsOf(token.tokens)}</p>`;
    case "heading":
      return html`<${`h${token.depth}`}>${elementsOf(token.tokens)}<//>`;
    case "blockquote":
    case "strong":
    case "em":
    case "del":
      return html`<${token.type}>${elementsOf(token.tokens)}<//>`;
    case "list":
      return html`<${token.ordered ? "ol" : "ul"} start=${token.start || undefined}>${token.items.map(({ tokens }) => html`<li>${elementsOf(tokens)}</li>`)}<//>`;
    case "checkbox":
      return token.checked ? "☑ " : "☐ ";
    case "table":
      return html`<table><thead>${rowOf(token.header)}</thead><tbody>${token.rows.map(rowOf)}</tbody></table>`;
    case "code":
      return html`<pre><code>${token.text}</code></pre>`;
    case "codespan":
      return html`<code>${token.text}</code>`;
    case "link":
      return /^(https?|mailto):/i.test(token.href)
        ? html`<a href=${token.href} rel="noopener noreferrer" target="_blank">${elementsOf(token.tokens)}</a>`
        : token.raw;
    case "text":
      return token.tokens ? elementsOf(token.tokens) : withCharacters(token.text);
    case "escape":
      return token.text;
    case "hr":
    case "br":
      return html`<${token.type} />`;
    case "space":
    case "def":
      return null;
    default:
      // HTML is shown as text, and so is an image, which would tell its server who reads the note.
      return token.raw;
  }
}

const rowOf = (/** @type {Tokens.TableCell[]} */ cells) =>
  html`<tr>${cells.map(({ header, tokens }) => html`<${header ? "th" : "td"}>${elementsOf(tokens)}<//>`)}</tr>`;

/** The text with the characters that its references name, such as `&copy;`. */
const withCharacters = (/** @type {string} */ text) =>
  new DOMParser().parseFromString(text.replaceAll("<", "&lt;"), "text/html").documentElement.textContent;
