/** A study: the best value over time, and the tree of its tries, each with what it was worth beside the noise. */

import { html, useMemo } from "../../preact.js";
import { Chart } from "../../charts/chart.js";
import { useChartSettings } from "../../charts/settings.js";
import { Answered, Empty, Remark } from "../../parts/states.js";
import { formatNumber } from "../../parts/text.js";
import { address } from "../../state/api.js";
import { useAnswer } from "../../state/answers.js";
import { linkTo } from "../../state/place.js";
/** @import { Board, BoardLine, StudyAnswer } from "api" */
/** @import { Change } from "../../state/events.js" */

const INDENT_PX = 18;
const SIGNS = { keep: "✓ keep", discard: "⊘ discard" };

/** @param {{experimentId: number, follows: (change: Change) => boolean}} props */
export function Study({ experimentId, follows }) {
  const answer = useAnswer(address(["experiments", experimentId, "study"]), { follows });
  return html`
    <div class="pane">
      <${Answered} answer=${answer} what="the study">${(/** @type {StudyAnswer} */ found) => html`<${Found} found=${found} />`}<//>
    </div>
  `;
}

/** @param {{found: StudyAnswer}} props */
function Found({ found: { board, depths, best_curve: best } }) {
  const settings = useChartSettings();
  const curves = useMemo(() => curvesOf(best), [best]);
  if (board.tries.length === 0) return html`<${Empty} title="Nothing was tried yet." />`;
  return html`
    <p class="soft">${summary(board)}</p>
    ${board.alarms.map((alarm) => html`<${Remark}>${alarm}<//>`)}
    ${board.num_tries > board.tries.length && html`<${Remark}>These are the first ${board.tries.length} of ${board.num_tries}.<//>`}
    ${best.length > 0 && html`<${Chart} title=${`${board.metric} by seconds since the first try`} curves=${curves} height=${240} ...${settings} axis="steps" />`}
    <div class="card scroll-x spaced" tabindex="0" role="region" aria-label="Tries"><${Tree} board=${board} depths=${depths} /></div>
  `;
}

/** @param {{board: Board, depths: number[]}} props */
const Tree = ({ board: { tries, best, metric }, depths }) => html`
  <table class="plain-table stacks">
    <thead><tr><th>Try</th><th class="number">${metric}</th><th>To the parent</th><th>Verdict</th><th>Hypothesis</th><th>By</th><th>State</th></tr></thead>
    <tbody>
      ${tries.map(
        (one, index) => html`
          <tr key=${one.try_id} class=${one.try_id === best ? "differs" : ""}>
            <td data-name="Try"><a style=${{ marginLeft: `${depths[index] * INDENT_PX}px` }} href=${linkTo(["trials", one.try_id])}>${one.try_id}</a>${one.try_id === best && " best"}</td>
            <td class="number" data-name=${metric}>${formatNumber(one.value)}${one.spread !== null && ` ± ${formatNumber(one.spread)}`} <span class="soft">n = ${one.num_values}</span></td>
            <td data-name="To the parent">${differenceOf(one)}</td>
            <td data-name="Verdict">${SIGNS[/** @type {keyof typeof SIGNS} */ (one.verdict)] ?? ""} <span class="soft">${one.verdict_reason}</span></td>
            <td data-name="Hypothesis">${one.hypothesis}</td>
            <td data-name="By">${one.author}</td>
            <td data-name="State">${one.state} <span class="soft">${[one.reason, ...one.alarms].filter(Boolean).join("; ")}</span></td>
          </tr>
        `,
      )}
    </tbody>
  </table>
`;

/** What is known of all tries together. */
export function summary(/** @type {Board} */ { num_tries: tries, num_failed: failed, num_running: running, noise, num_lucky: lucky }) {
  const words = [tries === 1 ? "1 try" : `${tries.toLocaleString("en-US")} tries`];
  if (running > 0) words.push(`${running} running`);
  if (failed > 0) words.push(`${failed} failed`);
  if (noise !== null) words.push(`seeds of one try differ by ${formatNumber(noise)}`);
  if (lucky >= 0.5) words.push(`by luck alone, about ${Math.round(lucky)} look better beyond noise`);
  return words.join(", ");
}

/** The difference of a try to its parent, and whether noise explains it. */
export function differenceOf(/** @type {BoardLine} */ { difference, margin, mark, is_better: isBetter, at_step: step }) {
  if (difference === null) return "";
  const sign = Number(difference) > 0 ? "+" : "";
  const interval = margin === null ? "" : ` ± ${formatNumber(margin)}`;
  const better = mark === "beyond noise" ? (isBetter ? " better" : " worse") : "";
  return `${sign}${formatNumber(difference)}${interval} ${mark}${better}${step === null ? "" : ` at step ${step}`}`;
}

function curvesOf(/** @type {[number, number][]} */ best) {
  const values = best.map(([, value]) => value);
  return [
    { label: "the best", colour: "--series-2", series: { x: best.map(([seconds]) => seconds), minimum: values, maximum: values, mean: values } },
  ];
}
