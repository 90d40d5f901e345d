/** The checkpoints of a trial or of an experiment: what is in them, and why collection keeps each. */

import { html, useEffect, useMemo, useState } from "../preact.js";
import { Select, Switch } from "../parts/choice.js";
import { Copyable } from "../parts/copying.js";
import { own } from "../parts/own.js";
import { Answered, Empty, Failure, Remark } from "../parts/states.js";
import { StateBadge } from "../parts/state-badge.js";
import { counted, formatAge, formatNumber, formatSize, formatTime } from "../parts/text.js";
import { address } from "../state/api.js";
import { once, useAnswer } from "../state/answers.js";
import { linkTo, useSetting } from "../state/place.js";
import { ActionButtons } from "./action-buttons.js";
import { Card, flattened } from "./facts.js";
import { FileLink } from "./file-link.js";
import { SelectionBar } from "./runs/selection.js";
import { Way } from "./way.js";
/** @import { CheckpointRow, CheckpointsAnswer, KeptAnswer, RetentionAnswer } from "api" */
/** @import { Change } from "../state/events.js" */

const AT_FIRST = 200;
const MOST_AT_ONCE = 1000;
const MAX_FILES = 200;

/** @param {{query: {trial?: number, experiment?: number}, experimentId: number, home: string, follows: (change: Change) => boolean}} props */
export function Checkpoints({ query, experimentId, home, follows }) {
  const [deleted, setDeleted] = useSetting("deleted");
  const [metric, setMetric] = useSetting("metric");
  const [limit, setLimit] = useState(AT_FIRST);
  const [chosen, setChosen] = useState(/** @type {Set<string>} */ (new Set()));
  const answer = useAnswer(address(["checkpoints"], { ...query, deleted: deleted || null, limit }), {
    follows,
    about: JSON.stringify([query, deleted]),
  });
  const retention = useRetention(experimentId, answer.value?.checkpoints);
  const reload = () => {
    answer.reload();
    retention.reload();
  };
  const verdicts = useMemo(() => new Map((retention.value?.checkpoints ?? []).map((one) => [one.storage_id, one])), [retention.value]);
  return html`
    <${Answered} answer=${answer} what="checkpoints">
      ${(/** @type {CheckpointsAnswer} */ { checkpoints: found, num_found: numFound, size_bytes: size, metric: searched }) => {
        const checkpoints = found.map((row) => ({ ...row, home }));
        const names = [...new Set(checkpoints.flatMap((row) => Object.keys(row.metrics)))];
        const shown = names.find((name) => name === metric) ?? names.find((name) => name === searched) ?? names[0];
        const condemned = checkpoints.filter(({ storage_id: id }) => verdicts.get(id)?.is_kept === false);
        return html`
          <div class="toolbar">
            <span><b>${counted(numFound, "checkpoint")}</b> <span class="soft">${formatSize(size)}</span></span>
            <${Switch} label="Deleted ones too" isOn=${deleted !== ""} onChange=${(/** @type {boolean} */ isOn) => setDeleted(isOn ? "true" : "")} />
            ${names.length > 1 && html`<${Select} label="Metric" values=${names.map((name) => [name, name])} value=${shown} onChange=${setMetric} />`}
            <span class="spread"></span>
            <span class="soft" role="status">${retention.value && policyText(retention.value)}</span>
            ${
              condemned.length > 0 &&
              html`<button class="small" onClick=${() => setChosen(new Set(condemned.map((row) => row.storage_id)))}>Choose the ${counted(condemned.length, "checkpoint")} that it does not keep, ${formatSize(sizeOf(condemned))}</button>`
            }
          </div>
          <div class="pane">
            ${retention.error && html`<${Failure} error=${retention.error} onRetry=${retention.reload} />`}
            ${(retention.value?.problems ?? []).map((problem) => html`<${Remark}>${problem}<//>`)}
            ${
              checkpoints.length === 0
                ? html`<${Empty} title="No checkpoint."><p>A script stores one with this line.</p><pre><code>with ctx.checkpoint.store_path(metadata) as (path, storage_id): …</code></pre><//>`
                : html`<${Table} checkpoints=${checkpoints} verdicts=${verdicts} metric=${shown} withTrial=${!query.trial} chosen=${chosen} onChoose=${setChosen} onDone=${reload} />`
            }
            ${numFound > checkpoints.length && html`<${More} numShown=${checkpoints.length} numFound=${numFound} onMore=${() => setLimit(MOST_AT_ONCE)} />`}
          </div>
          ${
            chosen.size > 0 &&
            html`<${SelectionBar} kind="checkpoints" runs=${checkpoints.filter((row) => chosen.has(row.storage_id))} onClear=${() => setChosen(new Set())} onDone=${reload} />`
          }
        `;
      }}
    <//>
  `;
}

/** Returns what collection would do. It reads journals and storages, so it is asked after the checkpoints, and only when they are others. */
function useRetention(/** @type {number} */ experimentId, /** @type {CheckpointRow[] | undefined} */ checkpoints) {
  const retention = useAnswer(checkpoints ? address(["experiments", experimentId, "retention"]) : null, once);
  const marks = checkpoints?.map(({ storage_id: id, state, is_pinned: isPinned }) => `${id} ${state} ${isPinned}`).join("\n");
  const [seen, setSeen] = useState(/** @type {string | undefined} */ (undefined));
  useEffect(() => {
    if (marks === undefined || marks === seen) return;
    if (seen !== undefined) retention.reload();
    setSeen(marks);
  }, [marks]);
  return retention;
}

/** Says what the policy keeps. */
function policyText(/** @type {RetentionAnswer} */ { policy, metric }) {
  if (policy === null) return "No policy: every checkpoint is kept.";
  const { save_experiment_best: best, save_trial_best: bestOfTrial, save_trial_latest: newest, keep_every: every } = policy;
  const parts = [
    best && `the best ${best} of the experiment`,
    bestOfTrial && `the best ${bestOfTrial} of each trial`,
    every && `the first of every ${every.steps ? `${every.steps} steps` : `${every.hours} hours`} of each trial`,
    newest && `the newest ${newest} of each trial`,
  ].filter(Boolean);
  const order = metric ? ` Best: the ${metric.smaller_is_better ? "smallest" : "largest"} ${metric.name}.` : "";
  return `The policy keeps ${parts.join(", ") || "nothing"}.${order}`;
}

/**
 * @param {object} props
 * @param {CheckpointRow[]} props.checkpoints
 * @param {Map<string, KeptAnswer>} props.verdicts
 * @param {string | undefined} props.metric
 * @param {boolean} props.withTrial
 * @param {Set<string>} props.chosen
 * @param {(chosen: Set<string>) => void} props.onChoose
 * @param {() => void} props.onDone
 */
function Table({ checkpoints, verdicts, metric, withTrial, chosen, onChoose, onDone }) {
  const [open, setOpen] = useSetting("checkpoint");
  const toggle = (/** @type {string} */ id) => {
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    onChoose(next);
  };
  const all = checkpoints.filter(isThere).map(({ storage_id: id }) => id);
  return html`
    <div class="card scroll-x" tabindex="0" role="region" aria-label="Checkpoints">
      <table class="plain-table stacks">
        <thead>
          <tr>
            <th class="narrow">
              <input type="checkbox" aria-label="Choose all" checked=${chosen.size > 0} indeterminate=${chosen.size > 0 && chosen.size < all.length} onChange=${() => onChoose(new Set(chosen.size > 0 ? [] : all))} />
            </th>
            <th>Checkpoint</th>${withTrial && html`<th class="number">Trial</th>`}<th class="number">Steps</th>${metric && html`<th class="number">${metric}</th>`}<th>Stored</th><th>State</th><th class="number">Size</th>${verdicts.size > 0 && html`<th>Collection</th>`}
          </tr>
        </thead>
        <tbody>
          ${checkpoints.map(
            (row) => html`
              <${Row}
                key=${row.storage_id}
                row=${row}
                verdict=${verdicts.get(row.storage_id)}
                withVerdict=${verdicts.size > 0}
                metric=${metric}
                withTrial=${withTrial}
                isChosen=${chosen.has(row.storage_id)}
                onToggle=${() => toggle(row.storage_id)}
                isOpen=${open === row.storage_id}
                onOpen=${() => setOpen(open === row.storage_id ? "" : row.storage_id)}
                onDone=${onDone}
              />
            `,
          )}
        </tbody>
      </table>
    </div>
  `;
}

/**
 * @param {object} props
 * @param {CheckpointRow} props.row
 * @param {KeptAnswer | undefined} props.verdict
 * @param {boolean} props.withVerdict
 * @param {string | undefined} props.metric
 * @param {boolean} props.withTrial
 * @param {boolean} props.isChosen
 * @param {() => void} props.onToggle
 * @param {boolean} props.isOpen
 * @param {() => void} props.onOpen
 * @param {() => void} props.onDone
 */
function Row({ row, verdict, withVerdict, metric, withTrial, isChosen, onToggle, isOpen, onOpen, onDone }) {
  return html`
    <tr class=${isChosen ? "chosen" : ""}>
      <td class="narrow"><input type="checkbox" aria-label=${`Choose ${row.storage_id}`} checked=${isChosen} disabled=${!isThere(row)} onChange=${onToggle} /></td>
      <td data-name="Checkpoint">
        <button class="quiet small mono fold" aria-expanded=${isOpen} onClick=${onOpen}><i aria-hidden="true">${isOpen ? "▾" : "▸"}</i> ${row.storage_id}</button>
        ${row.is_pinned && html` <span class="chip" title=${row.pin_note}>pinned${row.pin_note && `: ${row.pin_note}`}</span>`}
      </td>
      ${withTrial && html`<td class="number" data-name="Trial"><a href=${linkTo(["trials", row.trial_id])}>${row.trial_id}</a></td>`}
      <td class="number" data-name="Steps">${formatNumber(row.steps_completed)}</td>
      ${metric && html`<td class="number" data-name=${metric}>${formatNumber(own(row.metrics, metric))}</td>`}
      <td data-name="Stored" title=${formatTime(row.time)}>${formatAge(row.time)}</td>
      <td data-name="State">${row.is_missing ? html`<span class="state state-error" title="Its files are gone, although no record says that they were deleted."><i aria-hidden="true">✕</i>Files are gone</span>` : html`<${StateBadge} state=${row.state} />`}</td>
      <td class="number" data-name="Size">${formatSize(row.size_bytes)}</td>
      ${withVerdict && html`<td data-name="Collection">${verdict && html`<${Verdict} verdict=${verdict} />`}</td>`}
    </tr>
    ${isOpen && html`<tr class="details"><td colspan=${6 + Number(Boolean(metric)) + Number(withTrial) + Number(withVerdict)}><${Details} row=${row} onDone=${onDone} /></td></tr>`}
  `;
}

/** @param {{verdict: KeptAnswer}} props */
const Verdict = ({ verdict: { is_kept: isKept, reasons } }) =>
  isKept ? html`<span>${reasons.join(", ") || "kept"}</span>` : html`<span class="warning">not kept: the next collection deletes it</span>`;

/** @param {{row: CheckpointRow, onDone: () => void}} props */
function Details({ row, onDone }) {
  const files = Object.entries(row.resources).filter(([name]) => !name.endsWith("/"));
  return html`
    <div class="subject-actions start"><${ActionButtons} kind="checkpoints" rows=${[row]} onDone=${onDone} /></div>
    <div class="cards flat">
      <section class="card">
        <h2>${counted(files.length, "file")} <span class="soft">${formatSize(row.size_bytes)}</span></h2>
        <dl class="facts">
          ${files
            .slice(0, MAX_FILES)
            .map(
              ([name, size]) =>
                html`<dt class="mono">${isThere(row) ? html`<${FileLink} path=${["checkpoints", row.storage_id, "file"]} query=${{ name }}>${name}<//>` : name}</dt><dd class="tabular">${formatSize(size)}</dd>`,
            )}
        </dl>
        ${files.length > MAX_FILES && html`<p class="soft">And ${counted(files.length - MAX_FILES, "more file")}.</p>`}
        ${isThere(row) && html`<p class="soft">All of them, verified: <${Copyable} text=${`core-sdk checkpoint download ${row.storage_id}`} /></p>`}
      </section>
      <${Card} title="Metrics" facts=${Object.entries(row.metrics).map(([name, value]) => [name, formatNumber(value)])} none="Its attempt has validated nothing at its step." />
      <${Card} title="Metadata" facts=${flattened(row.metadata)} none="None." />
      <${Card} title="Place" facts=${[
        ["Storage", row.storage],
        ["Attempt", row.attempt],
        ["Stored", formatTime(row.time)],
        ["Pinned because", row.pin_note],
      ]} />
    </div>
    <${Way} storageId=${row.storage_id} />
  `;
}

/** @param {{numShown: number, numFound: number, onMore: () => void}} props */
const More = ({ numShown, numFound, onMore }) =>
  numShown < MOST_AT_ONCE
    ? html`<button class="more" onClick=${onMore}>Show more than the newest ${numShown}</button>`
    : html`<p class="soft spaced">The newest ${numShown.toLocaleString("en-US")} of ${numFound.toLocaleString("en-US")} are shown; the view of a trial has its own.</p>`;

const isThere = (/** @type {CheckpointRow} */ { state, is_missing: isMissing }) => state !== "DELETED" && !isMissing;
const sizeOf = (/** @type {CheckpointRow[]} */ rows) => rows.reduce((sum, { size_bytes: size }) => sum + size, 0);
