/** A chart: its title, its plot, the values under the pointer, and its export. */

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../preact.js";
import { Menu } from "../parts/menu.js";
import { formatDuration, formatNumber } from "../parts/text.js";
import { useThemeVersion } from "../state/theme.js";
import { moved, nearest, partOf, rangeOfX, traceOf, whyNothing } from "./curves.js";
import { csvOf, pngOf, svgOf } from "./export.js";
import { highlighted, pointingAt, useIsHighlighted } from "./highlight.js";
import { saveFile } from "../parts/saving.js";
import { LineSample } from "./palette.js";
import { createPlot, heapsOf } from "./plot.js";
/** @import { ComponentChildren } from "preact" */
/** @import { MenuItem } from "../parts/menu.js" */
/** @import { Curve, Limits, SoFar, Trace } from "./curves.js" */
/** @import { Cursor, Heap, Mark, Plot, PlotOptions } from "./plot.js" */

/** @type {Mark[]} */
const NO_MARKS = [];
/** The pointer is at a mark if it is within this part of the width. */
const NEAR = 60;
const MOST_TEXTS = 3;
/** The number of curves that the box at the pointer names. */
const MOST_ROWS = 10;
const MOST_WIDTH = 340;
/** The distance of the box from the pointer, in pixels. */
const GAP = 14;
/** @type {Limits} */
const NO_LIMITS = [null, null];

/**
 * @param {object} props
 * @param {string} props.title
 * @param {Curve[]} props.curves
 * @param {Mark[]} [props.marks]
 * @param {string} props.axis "steps", "time", "epochs", or a metric.
 * @param {number} [props.smoothing]
 * @param {SoFar} [props.soFar]
 * @param {boolean} [props.isLogX]
 * @param {boolean} [props.isLogarithmic] Whether the vertical axis is.
 * @param {Limits} [props.limits] The ends of the vertical axis, where they are set.
 * @param {boolean} [props.ignoresOutliers]
 * @param {[number, number] | null} props.zoom
 * @param {(zoom: [number, number] | null) => void} props.onZoom
 * @param {[number, number] | null} [props.whole] What is shown without a zoom; by default all of the curves.
 * @param {number} [props.height]
 * @param {(value: number) => string} [props.format] How a value is written.
 * @param {string} [props.note] What is to be known of the curves, below them.
 * @param {string} [props.caption] What somebody has written about the chart.
 * @param {boolean} [props.showsValues] Whether the values under the pointer are written below the plot.
 * @param {MenuItem[]} [props.actions] What else can be done with the chart.
 * @param {ComponentChildren} [props.handle] What stands before the title.
 */
export function Chart({
  title,
  curves,
  marks = NO_MARKS,
  axis,
  smoothing = 0,
  soFar = "",
  isLogX = false,
  isLogarithmic = false,
  limits = NO_LIMITS,
  ignoresOutliers = false,
  zoom,
  onZoom,
  whole = null,
  height = 210,
  format = formatNumber,
  note = "",
  caption = "",
  showsValues = true,
  actions = [],
  handle = null,
}) {
  const traces = useMemo(() => curves.map((curve) => traceOf(curve, smoothing, soFar)), [curves, smoothing, soFar]);
  const [box, width] = useWidth();
  const parent = useRef(/** @type {HTMLDivElement | null} */ (null));
  const plot = useRef(/** @type {Plot | null} */ (null));
  const [cursor, setCursor] = useState(/** @type {Cursor | null} */ (null));
  const themeVersion = useThemeVersion();
  const ownExtent = useMemo(() => rangeOfX(traces, isLogX), [traces, isLogX]);
  const extent = whole ?? ownExtent;
  const reason = useMemo(
    () => whyNothing(traces, zoom ?? extent ?? [-Infinity, Infinity], limits, { isLogX, isLogarithmic, ignoresOutliers }),
    [traces, extent?.[0], extent?.[1], zoom?.[0], zoom?.[1], limits[0], limits[1], isLogX, isLogarithmic],
  );
  const heaps = useMemo(() => {
    const visible = zoom ?? extent;
    return visible ? heapsOf(marks, (x) => width * partOf(x, visible, isLogX)) : [];
  }, [marks, extent?.[0], extent?.[1], zoom?.[0], zoom?.[1], isLogX, width]);
  const readout = { traces, texts: textsAt(heaps, cursor && cursor.x, zoom ?? extent), cursor, end: zoom && zoom[1], axis, format };
  const options = { traces, marks: heaps, axis, isLogX, isLogarithmic, limits, ignoresOutliers, zoom, whole: extent, width, height, format };

  const wanted = { ...options, onZoom, onCursor: setCursor };
  useLayoutEffect(() => {
    if (width === 0 || parent.current === null) return undefined;
    const created = createPlot(parent.current, wanted);
    plot.current = created;
    return () => {
      created.destroy();
      plot.current = null;
    };
  }, [axis, isLogX, isLogarithmic, width, height, themeVersion]);
  useLayoutEffect(
    () => plot.current?.update(wanted),
    [traces, heaps, extent?.[0], extent?.[1], ignoresOutliers, zoom?.[0], zoom?.[1], limits[0], limits[1], onZoom, format],
  );

  const picture = { title, traces, marks: heaps, axis, isLogX, isLogarithmic, limits, ignoresOutliers, zoom };
  const items = [
    ...actions,
    { label: "Save as PNG", onSelect: () => plot.current && pngOf(plot.current.canvas, picture, (blob) => saveFile(`${title}.png`, blob)) },
    { label: "Save as SVG", onSelect: () => saveFile(`${title}.svg`, svgOf(picture), "image/svg+xml") },
    { label: "Save as CSV", onSelect: () => saveFile(`${title}.csv`, csvOf(traces, axis), "text/csv") },
  ];
  return html`
    <figure class="chart" ref=${box}>
      <figcaption class="chart-head">
        ${handle}
        <span class="chart-title" title=${title}>${title}</span>
        ${zoom && html`<button class="quiet small" onClick=${() => onZoom(null)}>Show all</button>`}
        <${Menu} label=${actions.length ? `More of ${title}` : `Export ${title}`} text="⋯" items=${items} />
      </figcaption>
      <div class="chart-area">
        <div
          class="chart-plot"
          ref=${parent}
          role="img"
          tabindex="0"
          aria-label=${describe(title, traces, format)}
          style=${{ height: `${height}px` }}
          onKeyDown=${(/** @type {KeyboardEvent} */ event) => steer(event, options, onZoom)}
        ></div>
        ${reason && html`<p class="chart-reason" role="status">${reason}</p>`}
        ${cursor?.isHere && traces.length > 0 && html`<${Tooltip} ...${readout} cursor=${cursor} width=${width} height=${height} />`}
      </div>
      ${showsValues && traces.length > 0 && html`<${Values} ...${readout} />`}
      ${caption && html`<p class="chart-note">${caption}</p>`}
      ${(note || (traces.length === 0 && !reason)) && html`<p class="chart-note soft">${note || "Nothing was reported."}</p>`}
    </figure>
  `;
}

/**
 * What is told of the curves at the pointer, or at their end.
 * @typedef {object} Readout
 * @property {Trace[]} traces
 * @property {string[]} texts
 * @property {Cursor | null} cursor
 * @property {number | null} end
 * @property {string} axis
 * @property {(value: number) => string} format
 */

const named = (/** @type {Trace[]} */ traces) => traces.filter((trace) => !trace.isFaint && trace.places.length > 0);
const placeText = (/** @type {number} */ place, /** @type {string} */ axis) =>
  axis === "time" ? formatDuration(Math.max(0, place)) : formatNumber(place);

/** The values at the pointer, or the last ones of what is seen. @param {Readout} props */
function Values({ traces, texts, cursor, end, axis, format }) {
  const shown = named(traces);
  return html`
    <div class="chart-values" aria-hidden="true">
      <span class="chart-place">${cursor ? placeText(cursor.place, axis) : "last"}</span>
      <${Texts} texts=${texts} />
      ${shown.map((trace) => html`<${Value} key=${trace.label} trace=${trace} cursor=${cursor} end=${end} axis=${axis} hasLabel=${shown.length > 1} format=${format} />`)}
    </div>
  `;
}

/** @param {{texts: string[]}} props */
const Texts = ({ texts }) => html`
  ${texts.slice(0, MOST_TEXTS).map((text) => html`<b class="warning">⚠ ${text}</b>`)}
  ${texts.length > MOST_TEXTS && html`<b class="warning">and ${texts.length - MOST_TEXTS} more</b>`}
`;

/** A box at the pointer, with the largest values first. @param {Readout & {cursor: Cursor, width: number, height: number}} props */
function Tooltip({ traces, texts, cursor, axis, format, width, height }) {
  const at = (/** @type {Trace} */ trace) => nearest(trace, cursor.place);
  const valueOf = (/** @type {Trace} */ trace) => (trace.smooth ?? trace.means)[at(trace)];
  const orderOf = (/** @type {Trace} */ trace) => (Number.isNaN(valueOf(trace)) ? -Infinity : valueOf(trace));
  const ordered = named(traces).sort((one, other) => orderOf(other) - orderOf(one));
  const marked = ordered.findIndex(({ key }) => key === highlighted());
  const shown = ordered.filter((_, index) => index < MOST_ROWS - Number(marked >= MOST_ROWS) || index === marked);
  const [isRight, isLow] = [cursor.left > width / 2, cursor.top > height / 2];
  const style = {
    [isRight ? "right" : "left"]: `${(isRight ? width - cursor.left : cursor.left) + GAP}px`,
    [isLow ? "bottom" : "top"]: `${isLow ? height - cursor.top : cursor.top}px`,
    maxWidth: `${Math.min(MOST_WIDTH, (isRight ? cursor.left : width - cursor.left) - GAP)}px`,
  };
  return html`
    <div class="tooltip" aria-hidden="true" style=${style}>
      <b>${placeText(cursor.place, axis)}</b>
      <${Texts} texts=${texts} />
      ${shown.map(
        (trace) => html`
          <span key=${trace.label} class=${`tip-row ${trace.key === highlighted() ? "marked" : ""}`}>
            <${LineSample} ...${trace} />${ordered.length > 1 && html`<span class="tip-label">${trace.label}</span>`}<b>${valueAt(trace, at(trace), format)}</b>${elsewhere(trace, cursor, axis)}
          </span>
        `,
      )}
      ${shown.length < ordered.length && html`<span class="soft">+${ordered.length - shown.length}</span>`}
    </div>
  `;
}

/** Returns where a curve's nearest point lies, if not at the pointer's place. Only over steps the two often agree. */
function elsewhere(/** @type {Trace} */ trace, /** @type {Cursor} */ { place }, /** @type {string} */ axis) {
  const own = trace.places[nearest(trace, place)];
  return axis === "steps" && own !== place && html`<span class="soft">at ${formatNumber(own)}</span>`;
}

/** The texts of the marks that the pointer is at, the nearest first, and how often each is there. @param {Heap[]} marks @param {number | null} cursor @param {[number, number] | null} visible */
export function textsAt(marks, cursor, visible) {
  if (cursor === null || visible === null) return [];
  const distance = (/** @type {Mark} */ { x }) => Math.abs(x - cursor);
  const near = marks.filter((mark) => distance(mark) <= (visible[1] - visible[0]) / NEAR).sort((one, other) => distance(one) - distance(other));
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const { text } of near.flatMap(({ members }) => members)) if (text) counts.set(text, (counts.get(text) ?? 0) + 1);
  return [...counts].map(([text, count]) => (count === 1 ? text : `${text} (${count} times)`));
}

/** @param {{trace: Trace, cursor: Cursor | null, end: number | null, axis: string, hasLabel: boolean, format: (value: number) => string}} props */
function Value({ trace, cursor, end, axis, hasLabel, format }) {
  const isMarked = useIsHighlighted(trace.key);
  const place = cursor ? cursor.place : end;
  const index = place === null ? trace.places.length - 1 : nearest(trace, place);
  // With the pointer in a plot, the curve that stands out comes first; with the pointer here, nothing moves.
  return html`
    <span class=${`chart-value ${isMarked ? "marked" : ""} ${isMarked && cursor !== null ? "first" : ""}`} ...${hasLabel ? pointingAt(trace.key) : {}}>
      <${LineSample} ...${trace} />
      ${hasLabel && html`<span class="chart-label">${trace.label}</span>`}
      <b>${place === null && trace.last !== null && !trace.smooth ? format(trace.last) : valueAt(trace, index, format)}</b>
      ${cursor && elsewhere(trace, cursor, axis)}
      ${trace.isBand && html`<span class="soft">${bandAt(trace, index, format)}</span>`}
    </span>
  `;
}

function valueAt(/** @type {Trace} */ trace, /** @type {number} */ index, /** @type {(value: number) => string} */ format) {
  if (trace.smooth) return format(trace.smooth[index]);
  if (trace.isBand) return format(trace.means[index]);
  const low = trace.lows[index];
  const high = trace.highs[index];
  return low === high || Number.isNaN(low) ? format(low) : `${format(low)} … ${format(high)}`;
}

/** The band about a group's value, and how many trials are in it. */
export function bandAt(
  /** @type {Trace} */ { lows, highs, numTrials },
  /** @type {number} */ index,
  /** @type {(value: number) => string} */ format,
) {
  const band = lows[index] === highs[index] ? "" : `${format(lows[index])} … ${format(highs[index])}, `;
  return `${band}n = ${numTrials?.[index]}`;
}

/** Returns what a screen reader says of a chart. */
function describe(/** @type {string} */ title, /** @type {Trace[]} */ traces, /** @type {(value: number) => string} */ format) {
  const parts = traces
    .filter((trace) => !trace.isFaint && trace.places.length > 0)
    .slice(0, 10)
    .map((trace) => {
      const finite = [...trace.lows, ...trace.highs].filter(Number.isFinite);
      const low = finite.reduce((least, value) => Math.min(least, value), Infinity);
      const high = finite.reduce((most, value) => Math.max(most, value), -Infinity);
      return `${trace.label}: last ${format(trace.means[trace.means.length - 1])}, lowest ${format(low)}, highest ${format(high)}`;
    });
  return `Chart of ${title}. ${parts.join(". ") || "No values."}. Plus and minus zoom, arrows pan, zero shows all.`;
}

/** Zooms and pans by keys. */
function steer(
  /** @type {KeyboardEvent} */ event,
  /** @type {Pick<PlotOptions, "whole" | "zoom" | "isLogX">} */ { whole, zoom, isLogX },
  /** @type {(zoom: [number, number] | null) => void} */ onZoom,
) {
  if (whole === null || event.ctrlKey || event.metaKey || event.altKey || !(event.key in MOVES)) return;
  event.preventDefault();
  const [left, right] = MOVES[event.key];
  onZoom(moved(zoom ?? whole, whole, isLogX, (from, to) => [from + (left * (to - from)) / 5, to + (right * (to - from)) / 5]));
}

/** By how many fifths of what is seen each end moves. @type {Record<string, [number, number]>} */
const MOVES = { "+": [1, -1], "=": [1, -1], "-": [-1, 1], ArrowLeft: [-1, -1], ArrowRight: [1, 1], 0: [-Infinity, Infinity] };

/** A reference to an element, and its width. @returns {[{current: HTMLElement | null}, number]} */
export function useWidth() {
  const element = useRef(/** @type {HTMLElement | null} */ (null));
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => setWidth(Math.floor(innerWidthOf(element.current))), []);
  useEffect(() => {
    const observer = new ResizeObserver(() => setWidth(Math.floor(innerWidthOf(element.current))));
    observer.observe(/** @type {HTMLElement} */ (element.current));
    return () => observer.disconnect();
  }, []);
  return [element, width];
}

function innerWidthOf(/** @type {HTMLElement | null} */ element) {
  if (element === null) return 0;
  const { paddingLeft, paddingRight } = getComputedStyle(element);
  return Math.max(0, element.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight));
}
