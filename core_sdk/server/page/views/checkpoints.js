/** The checkpoints of a trial or of an experiment: what is in them, and why collection keeps each. */

import { html, useMemo } from "../preact.js";
import { Answered, Empty } from "../parts/states.js";
import { StateBadge } from "../parts/state-badge.js";
import { counted, formatAge, formatNumber, formatSize, formatTime } from "../parts/text.js";
import { address } from "../state/api.js";
import { useAnswer } from "../state/answers.js";
import { linkTo, useSetting } from "../state/place.js";
import { Switch } from "../parts/choice.js";
import { ActionButtons } from "./action-buttons.js";
import { Card, flattened } from "./facts.js";

const LIMIT = 500;

/** @param {{query: {trial?: number, experiment?: number}, experimentId: number, follows: (change: any) => boolean}} props */
export function Checkpoints({ query, experimentId, follows }) {
  const [deleted, setDeleted] = useSetting("deleted");
  const answer = useAnswer(address(["checkpoints"], { ...query, deleted: deleted || null, limit: LIMIT }), { follows });
  const retention = useAnswer(address(["experiments", experimentId, "retention"]), { follows }).value;
  const reasons = useMemo(() => new Map((retention?.checkpoints ?? []).map((/** @type {any} */ one) => [one.storage_id, one])), [retention]);
  const [open, setOpen] = useSetting("checkpoint");
  return html`
    <${Answered} answer=${answer} what="checkpoints">
      ${(/** @type {any} */ { checkpoints, num_found: numFound, size_bytes: size }) => html`
        <div class="toolbar">
          <span><b>${counted(numFound, "checkpoint")}</b> <span class="soft">${formatSize(size)}${numFound > checkpoints.length ? `, the newest ${checkpoints.length} are shown` : ""}</span></span>
          <${Switch} label="Deleted ones too" isOn=${deleted !== ""} onChange=${(/** @type {boolean} */ isOn) => setDeleted(isOn ? "true" : "")} />
          <span class="spread"></span>
          <span class="soft">${retention && !retention.has_policy ? "No policy: every checkpoint is kept." : ""}</span>
        </div>
        <div class="pane">
          ${checkpoints.length === 0
            ? html`<${Empty} title="No checkpoint."><p>A script stores one with this line.</p><pre><code>with ctx.checkpoint.store_path(metadata) as (path, storage_id): …</code></pre><//>`
            : html`
                <div class="card scroll-x" tabindex="0" role="region" aria-label="Checkpoints">
                  <table class="plain-table">
                    <thead>
                      <tr>
                        <th><span class="unseen">Open</span></th><th>Checkpoint</th>${!query.trial && html`<th class="number">Trial</th>`}<th class="number">Steps</th><th>Stored</th><th>State</th><th class="number">Size</th><th>Collection</th>
                      </tr>
                    </thead>
                    <tbody>
                      ${checkpoints.map(
                        (/** @type {any} */ row) => html`
                          <${Row} key=${row.storage_id} row=${row} verdict=${reasons.get(row.storage_id)} withTrial=${!query.trial} isOpen=${open === row.storage_id} onToggle=${() => setOpen(open === row.storage_id ? "" : row.storage_id)} onDone=${answer.reload} />
                        `,
                      )}
                    </tbody>
                  </table>
                </div>
              `}
        </div>
      `}
    <//>
  `;
}

function Row({ row, verdict, withTrial, isOpen, onToggle, onDone }) {
  return html`
    <tr>
      <td><button class="quiet small" aria-expanded=${isOpen} aria-label=${`Details of ${row.storage_id}`} onClick=${onToggle}>${isOpen ? "▾" : "▸"}</button></td>
      <td class="mono">${row.storage_id}${row.is_pinned && html` <span class="chip" title=${row.pin_note}>pinned</span>`}</td>
      ${withTrial && html`<td class="number"><a href=${linkTo(["trials", row.trial_id])}>${row.trial_id}</a></td>`}
      <td class="number">${formatNumber(row.steps_completed)}</td>
      <td title=${formatTime(row.time)}>${formatAge(row.time)}</td>
      <td><${StateBadge} state=${row.is_missing ? "ERROR" : row.state} reason=${row.is_missing ? "Its files are gone, although no record says that they were deleted." : ""} /></td>
      <td class="number">${formatSize(row.size_bytes)}</td>
      <td>${verdict && (verdict.is_kept ? verdict.reasons.join(", ") || "kept" : html`<span class="soft">not kept by the policy</span>`)}</td>
    </tr>
    ${isOpen && html`<tr class="details"><td colspan=${withTrial ? 8 : 7}><${Details} row=${row} onDone=${onDone} /></td></tr>`}
  `;
}

function Details({ row, onDone }) {
  const files = Object.entries(row.resources).filter(([name]) => !name.endsWith("/"));
  const canDownload = row.state !== "DELETED" && !row.is_missing;
  return html`
    <div class="subject-actions start"><${ActionButtons} kind="checkpoints" rows=${[row]} onDone=${onDone} /></div>
    <div class="cards flat">
      <section class="card">
        <h2>Files</h2>
        <dl class="facts">
          ${files.map(
            ([name, size]) => html`<dt class="mono">${canDownload ? html`<a href=${address(["checkpoints", row.storage_id, "file"], { name })} download>${name}</a>` : name}</dt><dd class="tabular">${formatSize(/** @type {number} */ (size))}</dd>`,
          )}
        </dl>
      </section>
      <${Card} title="Metadata" facts=${flattened(row.metadata)} none="None." />
      <${Card} title="Place" facts=${[["Storage", row.storage], ["Attempt", row.attempt], ["Stored", formatTime(row.time)], ["Pinned because", row.pin_note]]} />
    </div>
  `;
}
