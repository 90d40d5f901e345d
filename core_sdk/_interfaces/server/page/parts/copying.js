/** Text to take along, for example a command for the terminal. */

import { html } from "../preact.js";
import { say } from "./toast.js";

/** A text with a button that copies it. @param {{text: string}} props */
export function Copyable({ text }) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      say("Copied.");
    } catch {
      say("The browser does not let the page copy: select the text and copy it.", "failed");
    }
  };
  return html`<span class="copyable"><code>${text}</code><button class="quiet small" aria-label=${`Copy ${text}`} onClick=${copy}>Copy</button></span>`;
}
