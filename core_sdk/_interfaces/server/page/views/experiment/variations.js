/** The variations of an experiment as a tree: what was tried, what it reached, and what was decided. */

import { html } from "../../preact.js";
import { Answered, Remark } from "../../parts/states.js";
import { StateBadge } from "../../parts/state-badge.js";
import { formatNumber } from "../../parts/text.js";
import { address } from "../../state/api.js";
import { useAnswer } from "../../state/answers.js";
import { linkTo } from "../../state/place.js";
/** @import { VariationsAnswer } from "api" */
/** @import { Change } from "../../state/events.js" */

const INDENT_PX = 18;
const SIGNS = { keep: "✓ keep", discard: "⊘ discard" };

/** @param {{experimentId: number, follows: (change: Change) => boolean}} props */
export function Variations({ experimentId, follows }) {
  const answer = useAnswer(address(["experiments", experimentId, "variations"]), { follows });
  return html`
    <div class="pane">
      <${Answered} answer=${answer} what="the variations">
        ${(/** @type {VariationsAnswer} */ found) => html`<${Tree} found=${found} />`}
      <//>
    </div>
  `;
}

/** @param {{found: VariationsAnswer}} props */
const Tree = ({ found: { variations, metric, num_found: numFound } }) => html`
  ${numFound > variations.length && html`<${Remark}>These are the first ${variations.length} of ${numFound}.<//>`}
  <div class="card scroll-x" tabindex="0" role="region" aria-label="Variations">
    <table class="plain-table stacks">
      <thead><tr><th>Trial</th><th>Verdict</th><th class="number">${metric}</th><th>Hypothesis</th><th>State</th></tr></thead>
      <tbody>
        ${variations.map(
          ({ depth, trial_id: id, name, state, reason, hypothesis, verdict, verdict_reason: why, best, spread, num_seeds: numSeeds }) => html`
            <tr key=${id}>
              <td data-name="Trial"><a style=${{ marginLeft: `${depth * INDENT_PX}px` }} href=${linkTo(["trials", id])}>${id} ${name}</a></td>
              <td data-name="Verdict" title=${why}>${SIGNS[/** @type {keyof typeof SIGNS} */ (verdict)] ?? ""} <span class="soft">${why}</span></td>
              <td class="number" data-name=${metric}>${formatNumber(best)}${spread !== null && ` ± ${formatNumber(spread)}`}${numSeeds > 1 && ` (${numSeeds} seeds)`}</td>
              <td data-name="Hypothesis">${hypothesis}</td>
              <td data-name="State"><${StateBadge} state=${state} reason=${reason} /></td>
            </tr>
          `,
        )}
      </tbody>
    </table>
  </div>
`;
