/** Notes in Markdown. They become elements, never markup, so nothing in them can run or load. */

import { html, useEffect, useState } from "../preact.js";
import { act } from "../state/api.js";
import { sayFailure } from "./toast.js";
/** @import { Element } from "api" */
/** @import { ComponentChildren } from "preact" */

/** @param {{text: string}} props */
export function Markdown({ text }) {
  const [content, setContent] = useState(/** @type {(Element | string)[]} */ ([]));
  useEffect(() => {
    let isCurrent = true;
    act(["markdown"], { text }).then((answer) => isCurrent && setContent(answer.content), sayFailure);
    return () => {
      isCurrent = false;
    };
  }, [text]);
  return html`<div class="markdown">${content.map(drawn)}</div>`;
}

/** @param {Element | string} element @returns {ComponentChildren} */
function drawn(element) {
  if (typeof element === "string") return element;
  const { tag, content = [], href, start } = element;
  const link = href ? { href, rel: "noopener noreferrer", target: "_blank" } : {};
  return html`<${tag} start=${start ?? undefined} ...${link}>${content.map(drawn)}<//>`;
}
