/** The columns of the table: fields that every run has, as the server declares them, and one for each metric and hyperparameter. */

import { html } from "../../preact.js";
import { StateBadge } from "../../parts/state-badge.js";
import { own } from "../../parts/own.js";
import { formatAge, formatDuration, formatNumber, formatTime, formatValue } from "../../parts/text.js";
import { linkTo } from "../../state/place.js";
/** @import { ColumnAnswer } from "api" */
/** @import { Column } from "../../parts/grid.js" */
/** @import { Run } from "./grouping.js" */

const NUM_OF_A_KIND = 4;

/** What the table needs of each trial besides the columns in view. */
export const ALWAYS_READ = ["id", "experiment_id", "state", "progress", "reason", "label", "archived", "home"];

/** Fields that have another width or another look than others of their type. @type {Record<string, Partial<Column<Run>>>} */
const FIELDS = {
  id: { width: 62, show: ({ values: { id } }) => html`<a href=${linkTo(["trials", id])} tabindex="-1">${id}</a>` },
  experiment: {
    width: 170,
    show: ({ values: { experiment, experiment_id: id } }) =>
      html`<a class="plain" href=${linkTo(["experiments", id])} tabindex="-1" title=${experiment}>${experiment || `experiment ${id}`}</a>`,
  },
  name: { width: 160 },
  notes: { width: 200 },
  state: { width: 118, show: ({ values }) => showState(values) },
  steps: { width: 80 },
  duration: { show: ({ values: { duration } }) => (duration > 0 ? formatDuration(duration) : "") },
  progress: { width: 84, show: ({ values: { progress } }) => (progress == null ? "" : `${Math.floor(progress * 100)}%`) },
  label: { width: 130 },
  attempts: { width: 84 },
  archived: { show: ({ values: { archived } }) => (archived ? "archived" : "") },
  reason: { width: 200 },
  status: { width: 140 },
};

/** All columns that the table of trials can have, by name. @param {ColumnAnswer[]} known @returns {Map<string, Column<Run>>} */
export function allColumns(known) {
  return new Map(
    [...known, ...extremesOf(known)].map((column) => [column.name, { ...columnOf(column), ...(column.kind === "field" ? FIELDS[column.name] : {}) }]),
  );
}

/** The names of the columns of metrics and their extremes. @param {ColumnAnswer[]} known */
export const metricColumns = (known) => new Set([...known, ...extremesOf(known)].filter(({ kind }) => kind === "metric").map(({ name }) => name));

const extremesOf = (/** @type {ColumnAnswer[]} */ known) =>
  known
    .filter(({ kind, type }) => kind === "metric" && type === "number")
    .flatMap((column) => ["min", "max"].map((extreme) => ({ ...column, name: `${extreme}.${column.name}` })));

/** The columns that the table has unless somebody chooses; hyperparameters in which trials differ come first. @param {ColumnAnswer[]} known @param {boolean} [isNarrow] Whether state and metric come first, as on a phone. */
export function standardColumns(known, isNarrow = false) {
  const some = (/** @type {string} */ of) =>
    known
      .filter(({ kind, name }) => kind === of && !/(^|\.)(batches|epochs?)$/.test(name))
      .sort(
        (one, other) =>
          Number(one.is_constant) * Number(of === "hyperparameter") - Number(other.is_constant) * Number(of === "hyperparameter") ||
          other.num_trials - one.num_trials,
      )
      .slice(0, NUM_OF_A_KIND)
      .map(({ name }) => name);
  const [metrics, hyperparameters] = [some("metric"), some("hyperparameter")];
  const owner = known.filter(({ kind, name }) => kind === "field" && name === "owner").map(({ name }) => name);
  const first = isNarrow
    ? ["id", "state", ...owner, ...metrics.slice(0, 1), ...hyperparameters, "name", "experiment"]
    : ["id", ...owner, "name", "experiment", "state"];
  return [...new Set([...first, "steps", ...metrics, ...hyperparameters, "started", "duration", "label"])];
}

/** @param {ColumnAnswer} known @returns {Column<Run>} */
function columnOf({ name, title = "", type }) {
  const shown = title || name;
  return {
    name,
    title: shown,
    width: Math.max(96, Math.min(180, 34 + 7 * shown.length)),
    isNumber: type === "number",
    show: ({ values }) => showOfType(type, own(values, name)),
  };
}

function showOfType(/** @type {string} */ type, /** @type {any} */ value) {
  if (type === "time") return showTime(value);
  if (type === "list") return showLabels(value ?? []);
  return showText(formatValue(value));
}

/** The column of experiments of several homes. @type {Column<import("./experiments.js").ShownExperiment>} */
export const OWNER = { name: "owner", title: "Owner", width: 100, show: ({ values: { owner, home } }) => html`<span title=${home}>${owner}</span>` };

/** The columns of the table of experiments. @type {Column<import("./experiments.js").ShownExperiment>[]} */
export const OF_EXPERIMENTS = [
  {
    name: "id",
    title: "ID",
    width: 62,
    isNumber: true,
    show: ({ values: { id } }) => html`<a href=${linkTo(["experiments", id])} tabindex="-1">${id}</a>`,
  },
  {
    name: "name",
    title: "Name",
    width: 220,
    show: ({ values: { id, name } }) => html`<a class="plain" href=${linkTo(["experiments", id])} tabindex="-1" title=${name}>${name}</a>`,
  },
  { name: "state", title: "State", width: 118, show: ({ values }) => showState(values) },
  {
    name: "best",
    title: "Best",
    width: 170,
    isNumber: true,
    show: ({ values: { metric, best, best_trial: trial } }) =>
      best != null &&
      html`<span class="soft">${metric}</span> <a href=${linkTo(["trials", trial ?? ""])} tabindex="-1" title=${`trial ${trial}`}>${formatNumber(best)}</a>`,
  },
  {
    name: "progress",
    title: "Progress",
    width: 84,
    isNumber: true,
    show: ({ values: { progress } }) => (progress == null ? "" : `${Math.floor(progress * 100)}%`),
  },
  { name: "duration", title: "Duration", width: 96, isNumber: true, show: ({ values: { duration } }) => formatDuration(duration) },
  { name: "searcher", title: "Searcher", width: 120, show: ({ values }) => showText(values.searcher) },
  { name: "trials", title: "Trials", width: 76, isNumber: true, show: ({ values }) => formatNumber(values.trials) },
  { name: "started", title: "Started", width: 96, show: ({ values: { started } }) => showTime(started) },
  { name: "label", title: "Labels", width: 140, show: ({ values: { label } }) => showLabels(label) },
  { name: "description", title: "Description", width: 280, show: ({ values }) => showText(values.description) },
];

const ON_PHONES = ["id", "state", "best", "progress", "name"];
/** The same with state and metric first. */
export const NARROW_EXPERIMENTS = [
  ...ON_PHONES.flatMap((name) => OF_EXPERIMENTS.filter((column) => column.name === name)),
  ...OF_EXPERIMENTS.filter(({ name }) => !ON_PHONES.includes(name)),
];

const showState = (/** @type {{state: string, reason?: string, progress?: number | null}} */ { state, reason = "", progress }) => html`
  <${StateBadge} state=${state} reason=${reason} />
  ${state === "COMPLETED" && reason && html`<span role="img" title=${reason} aria-label=${reason}>⚠</span>`}
  ${state === "ACTIVE" && progress != null && html`<span class="percent">${Math.floor(progress * 100)}%</span>`}
`;

const showTime = (/** @type {number | null} */ time) => time && html`<span title=${formatTime(time)}>${formatAge(time)}</span>`;

const showLabels = (/** @type {string[]} */ labels) => labels.map((label) => html`<span class="chip" title=${label}>${label}</span>`);

const showText = (/** @type {string | undefined} */ text) => html`<span title=${text}>${text}</span>`;
