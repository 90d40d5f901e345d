/** The output of a trial's attempts: live, by rank, level and text, with links to lines. */

import { html, useCallback, useEffect, useMemo, useRef, useState } from "../../preact.js";
import { Coloured } from "../../parts/ansi.js";
import { Select, Switch } from "../../parts/choice.js";
import { useRowsInView } from "../../parts/rows-in-view.js";
import { Empty, Failure, Loading } from "../../parts/states.js";
import { counted } from "../../parts/text.js";
import { address } from "../../state/api.js";
import { changeSettings, useSetting } from "../../state/place.js";
import { useWindows } from "../../state/windows.js";
import { useFoundLines } from "./found-lines.js";
import { withText } from "../../parts/field.js";
/** @import { AttemptRow, LogLine, LogsAnswer, TrialRow } from "api" */
/** @import { Change } from "../../state/events.js" */

const LINE_HEIGHT = 18;
const WINDOW = 500;
const POLL_MS = 1000;
const LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"];

/** @param {{trial: TrialRow}} props */
export function Logs({ trial }) {
  const [attempt] = useSetting("attempt");
  const [rank, setRank] = useSetting("rank");
  const [level, setLevel] = useSetting("level", "DEBUG");
  const [search, setSearch] = useSetting("search");
  const [line] = useSetting("line");
  const [isFollowing, setIsFollowing] = useState(trial.state === "ACTIVE" && line === "");
  const isFiltered = rank !== "" || level !== "DEBUG" || search !== "";
  const follows = useCallback((/** @type {Change} */ { trials }) => trials.includes(trial.trial_id), [trial.trial_id]);
  const urlOf = useMemo(
    () => (/** @type {number} */ first, /** @type {number} */ limit) => address(["trials", trial.trial_id, "logs"], { attempt, first, limit }),
    [trial.trial_id, attempt],
  );
  const whole = useWindows(urlOf, readPage, { size: WINDOW, about: `${trial.trial_id} ${attempt}`, follows });
  const found = useFoundLines(isFiltered ? { trial: trial.trial_id, query: { attempt, rank: rank.split(","), level, search } } : null, whole.total);
  const isGrowing = trial.state === "ACTIVE" && attempt === "";
  useEffect(() => {
    // The server tells of records, not of output.
    if (!isGrowing) return undefined;
    const timer = setInterval(whole.reload, POLL_MS);
    return () => clearInterval(timer);
  }, [isGrowing, whole.reload]);
  const known = useRef(/** @type {AttemptRow[]} */ ([]));
  known.current = whole.answer?.attempts ?? known.current; // The attempts of the trial, whichever is shown.
  const attempts = known.current.filter((one) => one.log_size_bytes !== null);
  const numLines = isFiltered ? found.lines.length : whole.total;
  const error = whole.error ?? found.error;
  return html`
    <div class="toolbar">
      ${
        attempts.length > 1 &&
        html`<${Select} label="Attempt" values=${[["", "newest"], ...attempts.map(({ attempt: number }) => [String(number), String(number)])]} value=${attempt} onChange=${(/** @type {string} */ next) => changeSettings({ attempt: next || null, line: null })} />`
      }
      <input type="search" class="search" placeholder="Find in the output  /" aria-label="Find in the output" value=${search} onInput=${withText(setSearch)} />
      <${Select} label="Level" values=${LEVELS.map((name) => [name, name === "DEBUG" ? "all" : `${name} and above`])} value=${level} onChange=${setLevel} />
      <label class="select"><span>Ranks</span><input type="text" class="ranks" placeholder="all" aria-label="Only these ranks, separated by commas" value=${rank} onInput=${withText((text) => setRank(text.replace(/[^\d,]/g, "")))} /></label>
      <${Switch} label="Follow" title="Stay at the end while lines come." isOn=${isFollowing} onChange=${setIsFollowing} />
      <span class="spread"></span>
      <span class="soft number" role="status">${isFiltered ? `${found.isSearching ? "searching: " : ""}${counted(found.lines.length, "line")} of ${Math.max(0, whole.total).toLocaleString("en-US")}` : whole.total >= 0 && counted(whole.total, "line")}</span>
    </div>
    ${error && html`<${Failure} error=${error} onRetry=${whole.reload} />`}
    ${
      whole.total < 0
        ? !error && html`<${Loading} what="output" numLines=${14} />`
        : whole.total === 0
          ? html`<${Empty} title="No output was kept."><p>Output is kept where the training was started by Core SDK.</p><pre><code>core-sdk run python3 train.py</code></pre><//>`
          : numLines === 0 && !found.isSearching
            ? html`<${Empty} title="No line fits the filter." />`
            : numLines === 0
              ? html`<${Loading} what="lines that fit" numLines=${14} />`
              : html`
              <${Lines}
                key=${`${attempt} ${isFiltered}`}
                numLines=${numLines}
                lineAt=${isFiltered ? (/** @type {number} */ index) => found.lines[index] : whole.rowAt}
                onView=${isFiltered ? found.need : whole.need}
                isFollowing=${isFollowing}
                onLeaveEnd=${() => setIsFollowing(false)}
                isNumbered=${!isFiltered}
              />
            `
    }
  `;
}

/**
 * The lines in view, and the chosen one in full.
 * @param {object} props
 * @param {number} props.numLines
 * @param {(index: number) => LogLine | undefined} props.lineAt
 * @param {(first: number, last: number) => void} props.onView
 * @param {boolean} props.isFollowing
 * @param {() => void} props.onLeaveEnd
 * @param {boolean} props.isNumbered
 */
function Lines({ numLines, lineAt, onView, isFollowing, onLeaveEnd, isNumbered }) {
  const { box, first, last, height, top, onScroll, show, isAtEnd } = useRowsInView(numLines, LINE_HEIGHT);
  const [chosen, setChosen] = useSetting("line");
  const hasShown = useRef(false);
  useEffect(() => onView(first, last), [onView, first, last]);
  useEffect(() => {
    if (isFollowing) show(numLines - 1);
    else if (!hasShown.current && chosen !== "" && isNumbered) show(Number(chosen), "center");
    hasShown.current = true;
  }, [numLines, isFollowing]);
  const lines = Array.from({ length: last - first }, (_, offset) => lineAt(first + offset));
  const inFull = lines.find((line) => line && String(line.number) === chosen);
  const numberWidth = `${String(Math.max(numLines, lines.at(-1)?.number ?? 0)).length + 1}ch`;
  return html`
    <div
      class="log"
      role="region"
      aria-label="Output"
      tabindex="0"
      ref=${box}
      onScroll=${() => {
        onScroll();
        if (isFollowing && !isAtEnd()) onLeaveEnd();
      }}
    >
      <div class="log-space" style=${{ height: `${height}px` }}>
        <div class="log-lines" style=${{ transform: `translateY(${top}px)` }}>
          ${lines.map((line, offset) =>
            line === undefined
              ? html`<div class="log-line waiting" key=${`waiting ${offset}`}> </div>`
              : html`
                  <div key=${line.number} class=${`log-line level-${line.level.toLowerCase()} ${String(line.number) === chosen ? "chosen" : ""}`}>
                    <button class="log-number" tabindex="-1" style=${{ width: numberWidth }} aria-label=${`Link to line ${line.number + 1}`} onClick=${() => setChosen(String(line.number) === chosen ? "" : String(line.number))}>${line.number + 1}</button>
                    ${line.rank !== null && html`<span class="log-rank" title=${`rank ${line.rank}`}>${line.rank}</span>`}
                    <span class="log-text"><${Coloured} line=${line.text} />${line.is_cut && html`<span class="soft"> … (cut)</span>`}</span>
                  </div>
                `,
          )}
        </div>
      </div>
    </div>
    ${inFull && html`<div class="log-full" aria-label="The chosen line"><b class="soft">Line ${inFull.number + 1}</b><pre><${Coloured} line=${inFull.text} /></pre></div>`}
  `;
}

const readPage = (/** @type {LogsAnswer} */ { page }) => ({ rows: page.lines, total: page.num_lines });
