/** A chart in small panels, one for each value of a hyperparameter or of another name, with the same scales. */

import { html, useMemo } from "../../preact.js";
import { Chart } from "../../charts/chart.js";
import { rangeOfX, rangeOfY, traceOf } from "../../charts/curves.js";
import { Menu } from "../../parts/menu.js";
import { own } from "../../parts/own.js";
import { counted, formatValue } from "../../parts/text.js";
import { useSetting } from "../../state/place.js";
/** @import { Curve, Limits } from "../../charts/curves.js" */
/** @import { Mark } from "../../charts/plot.js" */
/** @import { Frame } from "./panel-grid.js" */
/** @import { Subject } from "./subjects.js" */

const MOST_FACETS = 12;
const HEIGHT = 160;

/** The name by whose values charts are split; empty if they are not. */
export const useFacet = () => useSetting("facet");

/**
 * The values of a name, numbers by their size and then texts, each with the keys of its subjects. Pure.
 * @param {Pick<Subject, "key" | "values">[]} subjects
 * @param {string} name
 * @returns {{text: string, keys: string[]}[]}
 */
export function facetsOf(subjects, name) {
  /** @type {Map<string, {value: unknown, keys: string[]}>} */
  const facets = new Map();
  for (const { key, values } of subjects) {
    const value = own(values, name);
    const text = (Array.isArray(value) ? value.join(", ") : formatValue(value)) || "none";
    const facet = facets.get(text) ?? { value, keys: /** @type {string[]} */ ([]) };
    facet.keys.push(key);
    facets.set(text, facet);
  }
  const rank = (/** @type {[string, {value: unknown}]} */ [text, { value }]) => (typeof value === "number" ? 0 : text === "none" ? 2 : 1);
  const order = (/** @type {[string, {value: unknown}]} */ one, /** @type {[string, {value: unknown}]} */ other) =>
    rank(one) - rank(other) || (rank(one) === 0 ? Number(one[1].value) - Number(other[1].value) : one[0].localeCompare(other[0]));
  return [...facets].sort(order).map(([text, { keys }]) => ({ text, keys }));
}

/**
 * The scales that all panels share: what they show of x, and the ends of y. Pure.
 * @param {Curve[]} curves
 * @param {Pick<Frame, "zoom" | "limits" | "smoothing" | "soFar" | "isLogX" | "isLogarithmic" | "ignoresOutliers">} frame
 * @returns {{whole: [number, number] | null, limits: Limits}}
 */
export function sharedScales(curves, { zoom, limits, smoothing, soFar, ...options }) {
  const traces = curves.map((curve) => traceOf(curve, smoothing, soFar));
  const whole = rangeOfX(traces, options.isLogX);
  const ends = whole && rangeOfY(traces, zoom ?? whole, options);
  return { whole, limits: [limits[0] ?? ends?.[0] ?? null, limits[1] ?? ends?.[1] ?? null] };
}

/**
 * A chart, in panels if the view says so. What belongs to no subject, such as the baseline, is in all of them.
 * @param {{subjects: Subject[], facet: string, curves: Curve[], marks?: Mark[], title: string, note: string, frame: Frame}} props
 */
export function FacetedChart({ subjects, facet, curves, marks = NO_MARKS, title, note, frame }) {
  const facets = useMemo(() => (facet ? facetsOf(subjects, facet) : []), [subjects, facet]);
  const panels = useMemo(() => {
    const keys = subjects.map(({ key }) => key);
    return facets.slice(0, MOST_FACETS).map(({ text, keys: members }) => {
      const isOf = (/** @type {{key?: string}} */ { key = "" }) => members.includes(key) || !keys.includes(key);
      return { text, curves: curves.filter(isOf), marks: marks.filter(isOf) };
    });
  }, [facets, curves, marks]);
  if (facets.length < 2) return html`<${Chart} ...${frame} curves=${curves} marks=${marks} title=${title} note=${note} />`;
  const scales = sharedScales(
    panels.flatMap((panel) => panel.curves),
    frame,
  );
  const numMore = facets.length - panels.length;
  const notes = [frame.caption, note, numMore > 0 && `${counted(numMore, "more value")} of ${facet} ${numMore === 1 ? "has" : "have"} no panel.`];
  return html`
    <figure class="chart facets">
      <figcaption class="chart-head">
        ${frame.handle}
        <span class="chart-title" title=${title}>${title}</span>
        <${Menu} label=${`More of ${title}`} text="⋯" items=${frame.actions} />
      </figcaption>
      <div class="facet-grid">
        ${panels.map(
          (panel) => html`
            <${Chart} key=${panel.text} ...${frame} ...${scales} curves=${panel.curves} marks=${panel.marks} title=${`${facet} ${panel.text}`} caption="" handle=${null} actions=${NO_ACTIONS} height=${HEIGHT} />
          `,
        )}
      </div>
      <p class="chart-note soft">${notes.filter(Boolean).join(" ")}</p>
    </figure>
  `;
}

/** @type {Mark[]} */
const NO_MARKS = [];
/** @type {Frame["actions"]} */
const NO_ACTIONS = [];
