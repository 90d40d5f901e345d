/**
 * The charts of a view: pure functions of a setting that the URL holds.
 *
 * By default there is a chart for each metric. The setting lists the panels in which something differs from that: those
 * that are pinned, in their order, panels of several metrics, and panels that have settings of their own.
 */

/** @import { Limits } from "../../charts/curves.js" */

/**
 * @typedef {object} Panel
 * @property {string} id The metric, "*." and a name for the metrics with this name in any group, or "+" and a number for a
 *   panel that somebody has added.
 * @property {string[]} of Its metrics.
 * @property {string} formula An expression over metrics, whose curve it has instead.
 * @property {string} re A regular expression whose matches it has too.
 * @property {string} title
 * @property {string} x "steps", "time", "epochs" or a metric; empty as in the other panels.
 * @property {string} logx "1", "0", or empty as in the other panels.
 * @property {string} log
 * @property {Limits} y
 * @property {string} note
 * @property {boolean} big
 * @property {boolean} pin
 * @property {boolean} off Whether it is hidden.
 */
/** @typedef {{title: string, panels: Panel[]}} Section */

const MOST_METRICS = 16;

export const PINNED = "Pinned";

/** @param {string} id @returns {Panel} */
export const standardPanel = (id) => ({
  id,
  of: /^[+*]/.test(id) ? [] : [id],
  re: id.startsWith("*") ? `^[^.]+${id.slice(1).replace(/[^\w ]/g, "\\$&")}$` : "",
  formula: "",
  title: id.startsWith("*") ? id.slice(2) : "",
  x: "",
  logx: "",
  log: "",
  y: [null, null],
  note: "",
  big: false,
  pin: id.startsWith("+"),
  off: false,
});

/** The panels of a setting, which somebody may have written. What has another type is as in a standard panel. @param {string} text @returns {Panel[]} */
export function readPanels(text) {
  const given = parsed(text);
  return (Array.isArray(given) ? given : []).flatMap((one) => {
    if (typeof one?.id !== "string") return [];
    const standard = standardPanel(one.id);
    const known = Object.entries(standard).map(([name, value]) => [name, isLike(one[name], value) ? one[name] : value]);
    return [/** @type {Panel} */ (Object.fromEntries(known))];
  });
}

/** The setting of panels: only what differs from standard ones. @param {Panel[]} panels */
export function writtenPanels(panels) {
  const kept = panels
    .map((panel) => {
      const standard = /** @type {Record<string, unknown>} */ (standardPanel(panel.id));
      return Object.entries(panel).filter(([name, value]) => name === "id" || JSON.stringify(value) !== JSON.stringify(standard[name]));
    })
    .filter((fields) => fields.length > 1);
  return kept.length === 0 ? "" : JSON.stringify(kept.map((fields) => Object.fromEntries(fields)));
}

/** The panels after one was changed or added. @param {Panel[]} panels @param {string} id @param {Partial<Panel>} change */
export function withChange(panels, id, change) {
  const has = panels.some((panel) => panel.id === id);
  return has ? panels.map((panel) => (panel.id === id ? { ...panel, ...change } : panel)) : [...panels, { ...standardPanel(id), ...change }];
}

/** The panels with one pinned in the place of another pinned one, which comes after it, or before it if it was after. @param {Panel[]} panels @param {string} id @param {string} place */
export function withMove(panels, id, place) {
  const pinned = withChange(panels, id, { pin: true });
  const [from, to] = [id, place].map((one) => pinned.findIndex((panel) => panel.id === one));
  if (from === to || to < 0) return pinned;
  const rest = pinned.filter((panel) => panel.id !== id);
  return [...rest.slice(0, to), pinned[from], ...rest.slice(to)];
}

/** The neighbour of a pinned panel, to its left with -1 and to its right with 1; undefined at an end. @param {Panel[]} panels @param {string} id @param {number} by */
export function neighbour(panels, id, by) {
  const pinned = panels.filter(({ pin, off }) => pin && !off);
  return pinned[pinned.findIndex((panel) => panel.id === id) + by]?.id;
}

/** An ID that no panel has. @param {Panel[]} panels */
export function newId(panels) {
  let number = 1;
  while (panels.some(({ id }) => id === `+${number}`)) number += 1;
  return `+${number}`;
}

/**
 * The sections of a view: the pinned panels, and the metrics of each group, or all metrics with a panel for each
 * name. Sections of which `first` is one come first.
 * @param {Panel[]} panels
 * @param {string[]} metrics
 * @param {string} search A regular expression, or a part of a name.
 * @param {string} first
 * @param {boolean} isByName
 * @returns {Section[]}
 */
export function sectionsOf(panels, metrics, search, first, isByName) {
  const fits = matcher(search);
  const known = new Map(panels.map((panel) => [panel.id, panel]));
  const isFirst = (/** @type {string} */ metric) => metric === first;
  const drawn = metrics.filter((metric) => search !== "" || !isCount(metric));
  const hasNamesake = isByName ? namesakesIn(metrics) : () => false;
  const ordered = [...drawn.filter(isFirst), ...drawn.filter((metric) => !isFirst(metric))];
  const ids = ordered.filter(fits).map((metric) => (hasNamesake(metric) ? `*${endOf(metric)}` : metric));
  const shown = [...new Set(ids)].map((id) => known.get(id) ?? standardPanel(id));
  /** @type {Map<string, Panel[]>} */
  const groups = new Map();
  for (const panel of shown.filter(({ pin, off }) => !pin && !off)) {
    const group = isByName ? "Metrics" : panel.id.split(".")[0];
    const members = groups.get(group);
    if (members) members.push(panel);
    else groups.set(group, [panel]);
  }
  const pinned = panels.filter((panel) => panel.pin && !panel.off && metricsOf(panel, metrics).some((metric) => fits(metric) || fits(panel.title)));
  const sections = [{ title: PINNED, panels: pinned }, ...[...groups].map(([title, members]) => ({ title, panels: members }))];
  return sections.filter((section) => section.panels.length > 0);
}

/** The metrics of a panel, of those that there are: all that its formula may mean, or the first ones, where very many match. @param {Pick<Panel, "of" | "re" | "formula">} panel @param {string[]} metrics */
export function metricsOf({ of, re, formula }, metrics) {
  if (formula !== "") return metrics.filter((metric) => formula.includes(endOf(metric).slice(1)));
  const fits = re === "" ? () => false : matcher(re);
  return metrics.filter((metric) => of.includes(metric) || fits(metric)).slice(0, MOST_METRICS);
}

/** The name of a metric with the dot before it, without its group. @param {string} metric */
const endOf = (metric) => metric.replace(/^[^.]*/, "");

/** Returns a test of whether another group has a metric of the same name. @param {string[]} metrics */
function namesakesIn(metrics) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const end of metrics.map(endOf)) counts.set(end, (counts.get(end) ?? 0) + 1);
  return (/** @type {string} */ metric) => (counts.get(endOf(metric)) ?? 0) > 1;
}

/** Returns whether two groups have a metric of the same name. @param {string[]} metrics */
export const haveNamesakes = (metrics) => new Set(metrics.map(endOf)).size < metrics.length;

/** Returns a test of whether a text has a match of a regular expression, or contains it as it stands. @param {string} search @returns {(text: string) => boolean} */
export function matcher(search) {
  const includes = (/** @type {string} */ text) => text.toLowerCase().includes(search.toLowerCase());
  try {
    const expression = new RegExp(search, "i");
    return (text) => expression.test(text) || includes(text);
  } catch {
    return includes;
  }
}

/** A Trainer reports them with each validation. They are an axis, and have a chart only if somebody looks for them. */
const isCount = (/** @type {string} */ name) => /(^|\.)(batches|epochs?)$/.test(name);

function parsed(/** @type {string} */ text) {
  try {
    return text === "" ? [] : JSON.parse(text);
  } catch {
    return [];
  }
}

function isLike(/** @type {unknown} */ value, /** @type {unknown} */ standard) {
  if (!Array.isArray(standard)) return typeof value === typeof standard;
  if (!Array.isArray(value)) return false;
  const areLimits = standard[0] === null;
  return areLimits ? value.length === 2 && value.every((one) => one === null || Number.isFinite(one)) : value.every((one) => typeof one === "string");
}
