/** The lines in which two texts differ. */

import { html, useMemo, useState } from "../preact.js";
import { diffLines } from "../vendor/diff/diff/line.js";

const NUM_CONTEXT = 3;
const MAX_EDITS = 4000;

/** @typedef {{kind: "same" | "added" | "removed" | "skipped", text: string, left: number | null, right: number | null}} Line */

/**
 * The lines of both texts; null if they differ in too much for a comparison.
 * @param {string} left
 * @param {string} right
 * @returns {Line[] | null}
 */
export function linesOfDifference(left, right) {
  const changes = diffLines(left, right, { maxEditLength: MAX_EDITS });
  if (!changes) return null;
  let leftLine = 0;
  let rightLine = 0;
  return changes.flatMap(({ value, added, removed }) =>
    value
      .replace(/\n$/, "")
      .split("\n")
      .map((text) => ({
        kind: /** @type {Line["kind"]} */ (added ? "added" : removed ? "removed" : "same"),
        text,
        left: added ? null : (leftLine += 1),
        right: removed ? null : (rightLine += 1),
      })),
  );
}

/** @param {{left: string, right: string, leftName: string, rightName: string}} props */
export function Difference({ left, right, leftName, rightName }) {
  const [showsAll, setShowsAll] = useState(false);
  const lines = useMemo(() => linesOfDifference(left, right), [left, right]);
  if (lines === null) return html`<p class="soft">They differ in more than ${MAX_EDITS.toLocaleString("en-US")} lines.</p>`;
  if (lines.every(({ kind }) => kind === "same")) return html`<p class="soft">They are the same.</p>`;
  const shown = showsAll ? lines : withoutFarLines(lines);
  return html`
    <div class="difference">
      <div class="difference-head">
        <span class="removed">− ${leftName}</span><span class="added">+ ${rightName}</span>
        <button class="quiet small" aria-pressed=${showsAll} onClick=${() => setShowsAll(!showsAll)}>Show every line</button>
      </div>
      <pre tabindex="0" aria-label=${`Differences between ${leftName} and ${rightName}`}>${shown.map(
        ({ kind, text, left: number, right: other }) =>
          html`<div class=${`diff-${kind}`}><i>${number ?? ""}</i><i>${other ?? ""}</i><b>${SIGNS[kind]}</b>${text}</div>`,
      )}</pre>
    </div>
  `;
}

/** Lines of a unified difference, as the server has made it. @param {{lines: string[], leftName: string, rightName: string}} props */
export const ChangedLines = ({ lines, leftName, rightName }) => html`
  <div class="difference">
    <div class="difference-head"><span class="removed">− ${leftName}</span><span class="added">+ ${rightName}</span></div>
    <pre tabindex="0" aria-label=${`Differences between ${leftName} and ${rightName}`}>${lines.map((line) => {
      const kind = line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "skipped";
      return html`<div class=${`diff-${kind}`}><b>${SIGNS[kind]}</b>${kind === "skipped" ? line : line.slice(1)}</div>`;
    })}</pre>
  </div>
`;

const SIGNS = { same: " ", added: "+", removed: "−", skipped: " " };

/** @param {Line[]} lines @returns {Line[]} */
function withoutFarLines(lines) {
  const isNear = lines.map(() => false);
  lines.forEach(({ kind }, index) => {
    if (kind !== "same") isNear.fill(true, Math.max(0, index - NUM_CONTEXT), index + NUM_CONTEXT + 1);
  });
  /** @type {Line[]} */
  const kept = [];
  lines.forEach((line, index) => {
    if (isNear[index]) kept.push(line);
    else if (kept.at(-1)?.kind !== "skipped") kept.push({ kind: "skipped", text: "⋯", left: null, right: null });
  });
  return kept;
}
