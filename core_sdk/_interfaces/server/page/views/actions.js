/** What can be done to trials, experiments and checkpoints: asked for first where it cannot be undone. */

import { html, useState } from "../preact.js";
import { Switch } from "../parts/choice.js";
import { Dialog } from "../parts/dialog.js";
import { say, sayFailure } from "../parts/toast.js";
import { act } from "../state/api.js";
import { isEnter, withText } from "../parts/field.js";

/** @typedef {"trials" | "experiments" | "checkpoints" | "models" | "versions"} Kind */

/**
 * What is known of a trial, an experiment, a checkpoint, a model or a version in every table that has actions; each has the id of its kind.
 * @typedef {object} Row
 * @property {string} state
 * @property {string[]} [labels] A checkpoint has none.
 * @property {string} [home] Where several homes are read as one.
 * @property {boolean} [is_archived]
 * @property {boolean} [is_pinned]
 * @property {object | null} [search] Of an experiment that was submitted.
 * @property {number} [trial_id]
 * @property {number} [experiment_id]
 * @property {string} [storage_id]
 * @property {number} [model_id]
 * @property {number} [version]
 */

/**
 * @typedef {object} Action
 * @property {string} name As the server calls it.
 * @property {string} label
 * @property {string} done What was done to several.
 * @property {string} [question] What is asked before it; without one it is done at once.
 * @property {{name: string, label: string}} [text] Words that are sent with it.
 * @property {string} [force] What it does beyond, if that is chosen.
 * @property {boolean} [isDangerous]
 * @property {boolean} [isForOne] Whether it makes sense for a single row only.
 * @property {(row: Row) => unknown} fits Whether it can be done to a row.
 */

const isActive = (/** @type {Row} */ { state }) => state === "ACTIVE";
const goesOn = (/** @type {Row} */ { state }) => state === "ACTIVE" || state === "QUEUED";
const isSearching = (/** @type {Row} */ row) => row.search && !hasEnded(row);
const hasEnded = (/** @type {Row} */ { state }) => ["COMPLETED", "CANCELED", "ERROR"].includes(state);

const FORCE = "Also checkpoints that are pinned, or that another trial began with";

/** @type {Record<Kind, Action[]>} */
export const ACTIONS = {
  trials: [
    { name: "pause", label: "Pause", done: "asked to pause", fits: goesOn },
    { name: "resume", label: "Resume", done: "resumed", fits: (row) => ["PAUSED", "CANCELED", "ERROR"].includes(row.state) },
    {
      name: "kill",
      label: "Kill",
      done: "killed",
      question: "Their processes are killed at once, without a last checkpoint.",
      isDangerous: true,
      fits: isActive,
    },
    {
      name: "change",
      label: "Rename",
      done: "renamed",
      question: "Without a name it gets its first one again.",
      text: { name: "name", label: "New name" },
      isForOne: true,
      fits: () => true,
    },
    { name: "archive", label: "Archive", done: "archived", fits: (row) => !isActive(row) && !row.is_archived },
    { name: "unarchive", label: "Unarchive", done: "brought back from the archive", fits: (row) => row.is_archived },
    {
      name: "delete",
      label: "Delete",
      done: "deleted",
      question: "Their records, output and checkpoints are deleted for good.",
      force: FORCE,
      isDangerous: true,
      fits: (row) => !goesOn(row),
    },
  ],
  experiments: [
    { name: "pause", label: "Pause", done: "paused", fits: isActive },
    { name: "activate", label: "Resume", done: "resumed", fits: (row) => row.search && row.state === "PAUSED" },
    { name: "cancel", label: "Cancel", done: "canceled", question: "Their trials save a checkpoint and end.", isDangerous: true, fits: isSearching },
    {
      name: "kill",
      label: "Kill",
      done: "killed",
      question: "All of their processes are killed at once, without a last checkpoint.",
      isDangerous: true,
      fits: (row) => isActive(row) || isSearching(row),
    },
    { name: "archive", label: "Archive", done: "archived", fits: (row) => !isActive(row) && !isSearching(row) && !row.is_archived },
    { name: "unarchive", label: "Unarchive", done: "brought back from the archive", fits: (row) => row.is_archived },
    {
      name: "delete",
      label: "Delete",
      done: "deleted",
      question: "All of their trials, with records, output and checkpoints, are deleted for good.",
      force: FORCE,
      isDangerous: true,
      fits: (row) => !isActive(row) && !isSearching(row),
    },
  ],
  checkpoints: [
    { name: "verify", label: "Verify", done: "verified: every file is as it was written", fits: ({ state }) => state !== "DELETED" },
    {
      name: "pin",
      label: "Pin",
      done: "pinned",
      question: "Nothing deletes them until they are unpinned.",
      text: { name: "note", label: "Why they are kept" },
      fits: (row) => !row.is_pinned && row.state !== "DELETED",
    },
    { name: "unpin", label: "Unpin", done: "unpinned", fits: (row) => row.is_pinned },
    {
      name: "register",
      label: "Register",
      done: "registered",
      question: "It becomes the newest version of a model, and nothing deletes it while it is that. A model that is not there is made.",
      text: { name: "model", label: "Name of the model" },
      isForOne: true,
      fits: ({ state }) => state !== "DELETED",
    },
    {
      name: "delete",
      label: "Delete",
      done: "deleted",
      question: "Their files are deleted for good.",
      force: FORCE,
      isDangerous: true,
      fits: ({ state }) => state !== "DELETED",
    },
  ],
  models: [
    { name: "archive", label: "Archive", done: "archived", fits: (row) => !row.is_archived },
    { name: "unarchive", label: "Unarchive", done: "brought back from the archive", fits: (row) => row.is_archived },
    {
      name: "delete",
      label: "Delete",
      done: "deleted",
      question: "It leaves the registry with all its versions. Their checkpoints stay, and can be deleted then.",
      isDangerous: true,
      fits: () => true,
    },
  ],
  versions: [
    {
      name: "change",
      label: "Rename",
      done: "renamed",
      question: "What this version is called.",
      text: { name: "name", label: "New name" },
      isForOne: true,
      fits: () => true,
    },
    {
      name: "delete",
      label: "Delete",
      done: "deleted",
      question: "It leaves the registry. Its checkpoint stays, and can be deleted then.",
      isDangerous: true,
      fits: () => true,
    },
  ],
};

/**
 * Asks where an action asks, does it to each row, and says what came of it.
 * @param {{kind: Kind, action: Action, rows: Row[], onClose: () => void, onDone: () => void, onDeleted?: () => void}} props
 */
export function Doing({ kind, action, rows, onClose, onDone, onDeleted }) {
  const [isUnderway, setIsUnderway] = useState(false);
  const [text, setText] = useState("");
  const [isForced, setIsForced] = useState(false);
  const ids = rows.map((row) => idOf(kind, row));
  const start = async () => {
    setIsUnderway(true);
    const isDone = await perform(kind, action, ids, { ...(action.text && { [action.text.name]: text }), ...(action.force && { force: isForced }) });
    onClose();
    if (isDone && action.name === "delete" && onDeleted) onDeleted();
    else onDone();
  };
  const noun = `${kind.slice(0, -1)}${ids.length === 1 ? "" : "s"}`;
  return html`
    <${Dialog} title=${`${action.label} ${ids.length} ${noun}?`} onClose=${onClose}>
      <div class="dialog-body">
        <p>${action.question}</p>
        <p class="mono ids">${ids.join(", ")}</p>
        ${action.text && html`<input type="text" aria-label=${action.text.label} placeholder=${action.text.label} autofocus value=${text} onInput=${withText(setText)} onKeyDown=${(/** @type {KeyboardEvent} */ event) => isEnter(event) && !isUnderway && start()} />`}
        ${action.force && html`<${Switch} label=${action.force} isOn=${isForced} onChange=${setIsForced} />`}
      </div>
      <div class="dialog-feet">
        <button onClick=${onClose}>Cancel</button>
        <button class=${`primary ${action.isDangerous ? "dangerous" : ""}`} disabled=${isUnderway} onClick=${start}>${action.label} ${noun}</button>
      </div>
    <//>
  `;
}

/** @typedef {Exclude<import("api").Action["path"], readonly ["markdown"]>} Path */
/** @typedef {import("api").BodyOf<Path>} Body */

/** Does something to each, says what came of it, and returns whether all was done. @param {Kind} kind @param {Action} action @param {(string | number)[]} ids @param {Body} [body] */
export async function perform(kind, action, ids, body) {
  const outcomes = await Promise.allSettled(
    ids.map((id) => act(/** @type {Path} */ (/** @type {unknown} */ ([...pathOf(kind, id), "actions", action.name])), body)),
  );
  const done = outcomes.flatMap((outcome) => (outcome.status === "fulfilled" ? [outcome.value] : []));
  const failed = outcomes.flatMap((outcome) => (outcome.status === "rejected" ? [outcome.reason] : []));
  if (done.length === 1) say(done[0].message);
  else if (done.length > 1) say(`${done.length} ${kind}: ${action.done}.`);
  for (const reason of failed.slice(0, 3)) sayFailure(reason);
  return failed.length === 0;
}

/** Returns the id of a row; a version's is its model's name, a slash and its number. @param {Kind} kind @param {Row} row @returns {string | number} */
export function idOf(kind, row) {
  const ids = {
    trials: row.trial_id,
    experiments: row.experiment_id,
    checkpoints: row.storage_id,
    models: row.model_id,
    versions: `${row.model_id}/${row.version}`,
  };
  return /** @type {string | number} */ (ids[kind]);
}

/** @param {Kind} kind @param {string | number} id */
function pathOf(kind, id) {
  if (kind !== "versions") return [kind, id];
  const [model, version] = String(id).split("/");
  return ["models", model, "versions", version];
}
