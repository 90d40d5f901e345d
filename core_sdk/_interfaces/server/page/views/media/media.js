/** The media of a trial by step, and the media of several trials side by side. */

import { html, useMemo, useState } from "../../preact.js";
import { Choice, Switch } from "../../parts/choice.js";
import { withText } from "../../parts/field.js";
import { Answered, Empty, Remark } from "../../parts/states.js";
import { counted, formatSize } from "../../parts/text.js";
import { useAnswer, useAnswers } from "../../state/answers.js";
import { address } from "../../state/api.js";
import { usePrefetched } from "../../state/contents.js";
import { useSetting } from "../../state/place.js";
import { RankChoice, useRank } from "../rank-choice.js";
import { filtered, kindsOf, placeOf, sectionsOf, stepsOf, worthPrefetching } from "./choosing.js";
import { Medium } from "./medium.js";
/** @import { ComponentChildren } from "preact" */
/** @import { MediaAnswer, TrialAnswer } from "api" */
/** @import { OfTrial } from "./choosing.js" */
/** @import { Change } from "../../state/events.js" */

/** @typedef {{trialId: number, answer: MediaAnswer}} Member */

/** @param {{found: TrialAnswer}} props */
export function TrialMedia({ found: { trial, reporting_ranks: ranks } }) {
  const id = trial.trial_id;
  const [superseded, setSuperseded] = useSetting("replaced");
  const [rank] = useRank();
  const answer = useAnswer(address(["trials", id, "media"], { superseded: superseded || null, rank: rank === "all" ? null : rank }), {
    follows: ({ trials }) => trials.includes(id),
  });
  return html`
    <${Answered} answer=${answer} what="media">
      ${(/** @type {MediaAnswer} */ value) => html`
        <${ByStep} members=${[{ trialId: id, answer: value }]}>
          ${trial.num_attempts > 1 && html`<${Switch} label="Superseded" title="Also show what later attempts have replaced." isOn=${superseded !== ""} onChange=${(/** @type {boolean} */ isOn) => setSuperseded(isOn ? "1" : "")} />`}
          <${RankChoice} ranks=${ranks} lowest=${`lowest (${ranks[0]})`} hasAll=${false} />
        <//>
      `}
    <//>
  `;
}

/** @param {{found: TrialAnswer[], follows: (change: Change) => boolean}} props */
export function ComparedMedia({ found, follows }) {
  const ids = found.map(({ trial }) => trial.trial_id);
  const answer = useAnswers(
    ids.map((id) => address(["trials", id, "media"])),
    { follows },
  );
  return html`
    <${Answered} answer=${answer} what="media">
      ${(/** @type {MediaAnswer[]} */ answers) => html`<${ByStep} members=${answers.map((value, index) => ({ trialId: ids[index], answer: value }))} />`}
    <//>
  `;
}

/**
 * Everything at one step, which a slider chooses.
 * @param {{members: Member[], children?: ComponentChildren}} props
 */
function ByStep({ members, children = null }) {
  const [kind, setKind] = useSetting("kind");
  const [search, setSearch] = useSetting("search");
  const [kept, keep] = useSetting("step");
  const [moved, setMoved] = useState(/** @type {number | null} */ (null));
  const all = members.flatMap(({ answer }) => answer.series);
  const key = JSON.stringify([kind, search, members.map(({ trialId, answer }) => [trialId, answer.num_files, answer.series.length])]);
  const chosen = useMemo(() => members.map(({ trialId, answer }) => ({ trialId, series: filtered(answer.series, kind, search) })), [key, members]);
  const steps = useMemo(() => stepsOf(chosen.flatMap(({ series }) => series)), [chosen]);
  const place = placeOf(steps, moved ?? (/^\d+$/.test(kept) ? Number(kept) : null));
  const step = steps[place] ?? 0;
  usePrefetched(useMemo(() => chosen.flatMap(({ trialId, series }) => worthPrefetching(series, step).map((item) => ({ trialId, item }))), [key]));
  if (all.length === 0) {
    return html`<${Empty} title="No media were reported."><p>Images, audio, histograms and more are values of a report.</p><pre><code>${EXAMPLE}</code></pre><//>`;
  }
  const show = (/** @type {number} */ index) => setMoved(steps[index]);
  const settle = (/** @type {number} */ index) => {
    show(index);
    keep(index === steps.length - 1 ? "" : String(steps[index]));
    if (index === steps.length - 1) setMoved(null);
  };
  const kinds = kindsOf(all);
  const numFiles = members.reduce((sum, { answer }) => sum + answer.num_files, 0);
  const sizeBytes = members.reduce((sum, { answer }) => sum + answer.size_bytes, 0);
  return html`
    <div class="toolbar">
      <${StepChoice} steps=${steps} place=${place} onMove=${show} onSettle=${settle} />
      ${kinds.length > 1 && html`<${Choice} label="Kind" values=${[["", "All"], ...kinds.map((one) => [one, TITLES[one] ?? one])]} value=${kind} onChange=${setKind} />`}
      ${children}
      <input type="search" class="search" placeholder="Find a name  /" aria-label="Find a name" value=${search} onInput=${withText(setSearch)} />
      <span class="spread"></span>
      <span class="soft">${counted(numFiles, "file")}, ${formatSize(sizeBytes)}</span>
    </div>
    <div class="pane">
      ${members.some(({ answer }) => answer.num_left_out > 0) && html`<${Remark}>There are more names than can be shown: ${members.map(({ answer }) => answer.num_left_out).join(", ")} are left out.<//>`}
      ${all.some(({ num_left_out: num }) => num > 0) && html`<${Remark}>Of names with more than 500 steps, evenly spaced steps are shown.<//>`}
      ${steps.length === 0 && html`<${Empty} title="No medium has such a name." />`}
      <${Gallery} chosen=${chosen} step=${step} />
    </div>
  `;
}

const EXAMPLE = 'context.train.report_metrics("validation", steps, {"samples": media.Image(tensor)})';

/** @type {Record<string, string>} */
const TITLES = {
  image: "Images",
  audio: "Audio",
  video: "Videos",
  histogram: "Histograms",
  table: "Tables",
  text: "Texts",
  figure: "Figures",
  confusion_matrix: "Matrices",
};

/** @param {{steps: number[], place: number, onMove: (place: number) => void, onSettle: (place: number) => void}} props */
function StepChoice({ steps, place, onMove, onSettle }) {
  const placeOfEvent = (/** @type {Event} */ { target }) => Number(/** @type {HTMLInputElement} */ (target).value);
  return html`
    <div class="step-choice">
      <button class="small" aria-label="The step before" disabled=${place <= 0} onClick=${() => onSettle(place - 1)}>‹</button>
      <input type="range" aria-label="Step" aria-valuetext=${`step ${steps[place]}`} min="0" max=${Math.max(0, steps.length - 1)} value=${place} disabled=${steps.length < 2} onInput=${(/** @type {Event} */ event) => onMove(placeOfEvent(event))} onChange=${(/** @type {Event} */ event) => onSettle(placeOfEvent(event))} />
      <button class="small" aria-label="The next step" disabled=${place >= steps.length - 1} onClick=${() => onSettle(place + 1)}>›</button>
      <span class="tabular">step ${steps[place]}</span>
    </div>
  `;
}

/** The media of one trial, or of several side by side. @param {{chosen: OfTrial[], step: number}} props */
const Gallery = ({ chosen, step }) =>
  sectionsOf(chosen).map(
    ({ title, isOfPictures, cards }) => html`
      <section class="chart-section" key=${title} aria-label=${title}>
        <h2>${title} <span class="soft">${cards.length}</span></h2>
        <div class=${`charts media ${isOfPictures ? "pictures" : ""}`}>
          ${cards.map((card) => html`<${Medium} ...${card} step=${step} />`)}
        </div>
      </section>
    `,
  );
