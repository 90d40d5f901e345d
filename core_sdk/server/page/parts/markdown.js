/** Notes in Markdown, without anything that could run or load. */

import { html, useEffect, useRef } from "../preact.js";
import { escaped } from "./text.js";
/** @import { Tokens } from "marked" */

/** @param {{text: string}} props */
export function Markdown({ text }) {
  const element = useRef(/** @type {HTMLDivElement | null} */ (null));
  useEffect(() => {
    let isCurrent = true;
    safeFragment(text).then((fragment) => isCurrent && element.current?.replaceChildren(fragment));
    return () => {
      isCurrent = false;
    };
  }, [text]);
  return html`<div class="markdown" ref=${element}></div>`;
}

/** @param {string} text @returns {Promise<DocumentFragment>} */
async function safeFragment(text) {
  // Few look at notes, so the libraries are loaded with the first one.
  const [{ Marked }, { default: purify }] = await Promise.all([
    import("../vendor/marked/marked.esm.js"),
    import("../vendor/dompurify/purify.min.js"),
  ]);
  const withoutHtml = {
    renderer: {
      html: (/** @type {Tokens.HTML | Tokens.Tag} */ token) => escaped(token.text),
      image: (/** @type {Tokens.Image} */ token) => escaped(token.raw),
    },
  };
  const fragment = purify.sanitize(await new Marked(withoutHtml).parse(text), {
    RETURN_DOM_FRAGMENT: true,
    USE_PROFILES: { html: true },
    // An image would tell its server who reads the note; a form could pretend to be ours.
    FORBID_TAGS: ["img", "picture", "video", "audio", "source", "style", "form", "input", "button", "select", "textarea"],
    FORBID_ATTR: ["style", "id", "name", "class"],
  });
  for (const link of fragment.querySelectorAll("a[href]")) {
    link.setAttribute("rel", "noopener noreferrer");
    link.setAttribute("target", "_blank");
  }
  return fragment;
}
