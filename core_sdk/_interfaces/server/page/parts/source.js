/** Text with the numbers of its lines, which are not copied with it. */

import { html, useMemo } from "../preact.js";

/** @param {{text: string, label: string}} props */
export function Source({ text, label }) {
  // Two texts rather than an element for each line: a file may have half a million.
  const [numbers, lines] = useMemo(() => {
    const shown = text.replace(/\n$/, "");
    return [Array.from({ length: shown.split("\n").length }, (_, index) => index + 1).join("\n"), shown];
  }, [text]);
  return html`
    <div class="source" tabindex="0" role="region" aria-label=${label}>
      <pre class="source-numbers" aria-hidden="true">${numbers}</pre>
      <pre>${lines}</pre>
    </div>
  `;
}
