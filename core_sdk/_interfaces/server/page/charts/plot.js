/** A plot: uPlot's axes, scales, zoom and cursor, with our curves drawn into them. */

import uPlot from "../vendor/uplot/uPlot.min.js";
import { colour } from "../state/theme.js";
import { formatNumber } from "../parts/text.js";
import { areasOf, limited, moved, rangeOfY, snapped, stretchesOf, traceAt } from "./curves.js";
import { highlight, highlighted, watchHighlight } from "./highlight.js";
/** @import { Limits, Trace } from "./curves.js" */

/**
 * @typedef {object} Mark
 * @property {number} x
 * @property {string} label
 * @property {string} [text] What is written with the values while the pointer is at it.
 * @property {string} [colour] The colour of a triangle at the top, which an alert has.
 * @property {string} [key] The key of the curves that it belongs to, if there are several.
 */
/** A mark, and those that are drawn as one with it. @typedef {Mark & {members: Mark[]}} Heap */

/**
 * @typedef {object} PlotOptions
 * @property {Trace[]} traces
 * @property {Heap[]} marks Vertical lines, for example where an attempt has begun.
 * @property {string} axis "steps", "time", "epochs", or a metric.
 * @property {boolean} isLogX
 * @property {boolean} isLogarithmic Whether the vertical axis is.
 * @property {Limits} limits
 * @property {boolean} ignoresOutliers
 * @property {[number, number] | null} zoom The visible stretch of x; null shows everything.
 * @property {[number, number] | null} whole What a null shows, and where zooming out and panning end.
 * @property {number} width In pixels.
 * @property {number} height
 * @property {(value: number) => string} format How a value is written.
 * @property {(zoom: [number, number] | null) => void} onZoom
 * @property {(cursor: Cursor | null) => void} onCursor Tells where the pointer is; null where it is outside.
 */

/**
 * Where the pointer is, in this plot or in another one with the same axis.
 * @typedef {object} Cursor
 * @property {number} x
 * @property {number} place The place of the nearest reported point, whose values are shown.
 * @property {number} left In pixels, of the area of the plot.
 * @property {number} top
 * @property {boolean} isHere
 */

const FAINT = 0.28;
/** Other curves than the one that stands out. */
const IN_BACKGROUND = 0.15;
/** The greatest distance at which the pointer points at a curve, in pixels. */
const REACH = 12;
const BAND = 0.16;
/** The opacity of the area between the extremes of buckets, whose spikes are thin. */
const EXTREMES = 0.4;

/** The radius of a point that has no line, in pixels. */
export const DOT = 2.5;
/** Half of the width of an alert's triangle, in pixels. */
export const TRIANGLE = 5;
/** The distance of the number of a heap from the top. */
export const COUNT = 18;
/** Alerts of a trial that are nearer to each other, in pixels, are one triangle. */
const HEAP = 16;
/** Alerts have lines too, if they are not more. */
const MOST_LINES = 8;

/** The range that is visible where there is nothing. @type {[number, number]} */
const NOTHING = [0, 1];
/** @type {[number, number]} */
const NOTHING_LOGARITHMIC = [0.1, 1];

/**
 * @typedef {object} Plot
 * @property {uPlot} canvas
 * @property {(options: PlotOptions) => void} update Draws other curves or another stretch into the plot that is there:
 *   a drag goes on, and the pointer keeps its place. The axis, the size and the colours stay.
 * @property {() => void} destroy
 */

/**
 * Marks as they are drawn. The alerts of a trial that lie at one place are one mark, in the colour of the worst of them.
 * @param {Mark[]} marks
 * @param {(x: number) => number} leftOf The pixel of a place.
 * @returns {Heap[]}
 */
export function heapsOf(marks, leftOf) {
  /** @type {Heap[]} */
  const heaps = [];
  /** @type {Map<string | undefined, Heap>} */
  const last = new Map();
  for (const mark of [...marks].sort((one, other) => one.x - other.x)) {
    const heap = mark.colour === undefined ? undefined : last.get(mark.key);
    if (heap && leftOf(mark.x) - leftOf(heap.x) < HEAP) {
      heap.members.push(mark);
      if (mark.colour === "--error") heap.colour = mark.colour;
      continue;
    }
    heaps.push({ ...mark, members: [mark] });
    if (mark.colour !== undefined) last.set(mark.key, heaps[heaps.length - 1]);
  }
  return heaps;
}

/** The marks that have a line: all, but alerts only if they are few. @template {Mark} T @param {T[]} marks */
export const linedMarks = (marks) => (marks.filter((mark) => mark.colour).length > MOST_LINES ? marks.filter((mark) => !mark.colour) : marks);

/** A plot with the options. @param {HTMLElement} parent @param {PlotOptions} options @returns {Plot} */
export function createPlot(parent, options) {
  let now = options;
  const nothing = (/** @type {boolean} */ isLogarithmic) => (isLogarithmic ? NOTHING_LOGARITHMIC : NOTHING);
  const visible = () => now.zoom ?? now.whole ?? nothing(now.isLogX);
  const scaleY = () => limited(rangeOfY(now.traces, visible(), now) ?? nothing(now.isLogarithmic), now.limits, now.isLogarithmic);
  const axisStyle = { stroke: colour("--axis"), font: `11px ${colour("--font")}` };
  const lines = { stroke: colour("--grid"), width: 1 };
  const tellCursor = (/** @type {uPlot} */ self) => {
    const { left = -1, top = -1 } = self.cursor;
    if (left < 0) return now.onCursor(null);
    const x = self.posToVal(left, "x");
    const place = snapped(now.traces, x) ?? x;
    const line = /** @type {HTMLElement | null} */ (self.over.querySelector(".u-cursor-x"));
    if (line) line.style.transform = `translate(${self.valToPos(place, "x")}px, 0px)`;
    now.onCursor({ x, place, left: left + self.over.offsetLeft, top: top + self.over.offsetTop, isHere: self.over.matches(":hover") });
  };
  // uPlot's own series only spans the axes: each of ours has places of its own, which uPlot would have to join.
  const span = () => /** @type {uPlot.AlignedData} */ ([visible(), [null, null]]);
  const plot = new uPlot(
    {
      width: options.width,
      height: options.height,
      padding: [8, 20, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false }, sync: { key: options.axis } },
      scales: {
        x: { time: false, distr: options.isLogX ? 3 : 1, range: visible },
        y: { distr: options.isLogarithmic ? 3 : 1, range: scaleY },
      },
      axes: [
        { ...axisStyle, grid: lines, ticks: lines, size: 28, ...ticksOf(options.axis) },
        {
          ...axisStyle,
          grid: lines,
          ticks: lines,
          size: widthOfLabels,
          values: (_, splits) => splits.map((value) => (value === null ? "" : now.format(value))),
        },
      ],
      series: [{}, { show: true, stroke: "transparent", points: { show: false } }],
      hooks: {
        draw: [(self) => drawEverything(self, now)],
        setSelect: [(self) => chooseZoom(self, now)],
        setCursor: [tellCursor],
      },
    },
    span(),
    parent,
  );
  plot.over.addEventListener("dblclick", () => now.onZoom(null));
  panAndZoom(plot, () => ({ onZoom: now.onZoom, isLogX: now.isLogX, visible: visible(), whole: now.whole ?? nothing(now.isLogX) }));
  pointAtCurves(plot, () => now.traces);
  const unwatch = watchHighlight(() => now.traces.length > 1 && plot.redraw(false));
  const update = (/** @type {PlotOptions} */ next) => {
    now = next;
    plot.setData(span());
    tellCursor(plot);
  };
  const destroy = () => {
    unwatch();
    highlight(null);
    plot.destroy();
  };
  return { canvas: plot, update, destroy };
}

/** Draws marks and curves into a canvas whose pixels are `self`'s. */
function drawEverything(/** @type {uPlot} */ self, /** @type {PlotOptions} */ { traces, marks, isLogarithmic, isLogX }) {
  const isMarked = (/** @type {Trace} */ { key }) => key === highlighted();
  const hasMarked = traces.some(isMarked);
  const rankOf = (/** @type {Trace} */ trace) => Number(!trace.isFaint) + 2 * Number(isMarked(trace));
  const { ctx, bbox } = self;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  const shown = hasMarked ? marks.filter(({ key }) => key === undefined || key === highlighted()) : marks;
  drawMarks(self, shown);
  for (const trace of traces)
    if ((trace.isBand || trace.hasArea) && (!hasMarked || isMarked(trace))) drawArea(self, trace, { isLogarithmic, isLogX });
  for (const trace of [...traces].sort((one, other) => rankOf(one) - rankOf(other))) {
    const strength = hasMarked ? (isMarked(trace) ? { alpha: 1, width: 1.8 } : { alpha: IN_BACKGROUND, width: 1 }) : { alpha: 1, width: 1 };
    drawTrace(self, trace, { isLogarithmic, isLogX, ...strength });
  }
  drawTriangles(self, shown);
  ctx.restore();
}

function drawMarks(/** @type {uPlot} */ self, /** @type {PlotOptions["marks"]} */ marks) {
  const { ctx, bbox } = self;
  ctx.textAlign = "left";
  ctx.font = `${10 * devicePixelRatio}px ${colour("--font")}`;
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  ctx.fillStyle = colour("--text-soft");
  for (const { x, label, colour: name } of linedMarks(marks)) {
    ctx.strokeStyle = colour(name ?? "--line-strong");
    const left = Math.round(self.valToPos(x, "x", true)) + 0.5;
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
    ctx.stroke();
    ctx.fillText(label, left + 3 * devicePixelRatio, bbox.top + 10 * devicePixelRatio);
  }
  ctx.setLineDash([]);
}

/** Alerts are at the top, over the curves, with their number: many of them, of several trials, are seen side by side. */
function drawTriangles(/** @type {uPlot} */ self, /** @type {PlotOptions["marks"]} */ marks) {
  const { ctx, bbox } = self;
  const size = TRIANGLE * devicePixelRatio;
  ctx.strokeStyle = colour("--surface");
  ctx.textAlign = "center";
  ctx.font = `600 ${10 * devicePixelRatio}px ${colour("--font")}`;
  for (const { x, colour: name, members } of marks) {
    if (name === undefined) continue;
    const left = self.valToPos(x, "x", true);
    ctx.fillStyle = colour(name);
    ctx.beginPath();
    ctx.moveTo(left - size, bbox.top);
    ctx.lineTo(left + size, bbox.top);
    ctx.lineTo(left, bbox.top + 1.6 * size);
    ctx.closePath();
    ctx.lineWidth = devicePixelRatio;
    ctx.fill();
    ctx.stroke();
    if (members.length === 1) continue;
    ctx.lineWidth = 3 * devicePixelRatio;
    ctx.strokeText(String(members.length), left, bbox.top + COUNT * devicePixelRatio);
    ctx.fillText(String(members.length), left, bbox.top + COUNT * devicePixelRatio);
  }
}

/** Fills what lies between the ends; on a logarithmic axis it goes down to the lower end of the plot. */
function drawArea(
  /** @type {uPlot} */ self,
  /** @type {Trace} */ trace,
  /** @type {Pick<Stroke, "isLogarithmic" | "isLogX">} */ { isLogarithmic, isLogX },
) {
  const { ctx, bbox } = self;
  const { left, top } = scalesOf(self, isLogX, isLogarithmic);
  ctx.beginPath();
  for (const [x, y, ...rest] of areasOf(trace, left, top, bbox.top + bbox.height)) {
    ctx.moveTo(x, y);
    for (let index = 0; index < rest.length; index += 2) ctx.lineTo(rest[index], rest[index + 1]);
    ctx.closePath();
  }
  ctx.globalAlpha = (trace.isBand ? BAND : EXTREMES) * (trace.isFaint ? FAINT : 1);
  ctx.fillStyle = ctx.strokeStyle = colour(trace.colour);
  ctx.lineWidth = devicePixelRatio;
  ctx.fill();
  // The band of a single point has no area.
  ctx.stroke();
  ctx.globalAlpha = 1;
}

/** @typedef {{isLogarithmic: boolean, isLogX: boolean, alpha: number, width: number}} Stroke */

function drawTrace(/** @type {uPlot} */ self, /** @type {Trace} */ trace, /** @type {Stroke} */ stroke) {
  const { ctx } = self;
  const { alpha, width } = stroke;
  ctx.strokeStyle = colour(trace.colour);
  ctx.lineJoin = "round";
  ctx.globalAlpha = alpha * (trace.isFaint || trace.smooth ? FAINT : 1);
  ctx.lineWidth = width * (trace.isBand ? 1.75 : 1.25) * devicePixelRatio;
  ctx.setLineDash(trace.dash.map((length) => length * devicePixelRatio));
  strokePath(self, trace, stroke, trace.means);
  if (trace.smooth) {
    ctx.globalAlpha = alpha * (trace.isFaint ? FAINT : 1);
    ctx.lineWidth = width * 1.75 * devicePixelRatio;
    strokePath(self, trace, stroke, trace.smooth);
  }
  ctx.setLineDash([]);
  ctx.globalAlpha = 1;
}

/**
 * One line through a value of each bucket.
 * @param {uPlot} self
 * @param {Trace} trace
 * @param {Stroke} stroke
 * @param {Float64Array} values
 */
function strokePath(self, trace, { isLogarithmic, isLogX }, values) {
  const { ctx } = self;
  const radius = DOT * devicePixelRatio;
  const dots = new Path2D();
  const { left, top } = scalesOf(self, isLogX, isLogarithmic);
  ctx.beginPath();
  for (const [x, y, ...rest] of stretchesOf(trace, values, left, top)) {
    ctx.moveTo(x, y);
    for (let index = 0; index < rest.length; index += 2) ctx.lineTo(rest[index], rest[index + 1]);
    if (rest.length > 0) continue;
    dots.moveTo(x + radius, y);
    dots.arc(x, y, radius, 0, 2 * Math.PI);
  }
  ctx.stroke();
  ctx.fillStyle = ctx.strokeStyle;
  ctx.fill(dots);
}

/** Returns functions that convert places and values to pixels; NaN for what has no logarithm. */
const scalesOf = (/** @type {uPlot} */ self, /** @type {boolean} */ isLogX, /** @type {boolean} */ isLogarithmic) => ({
  left: (/** @type {number} */ x) => (isLogX && x <= 0 ? NaN : self.valToPos(x, "x", true)),
  top: (/** @type {number} */ y) => (isLogarithmic && y <= 0 ? NaN : self.valToPos(y, "y", true)),
});

function chooseZoom(/** @type {uPlot} */ self, /** @type {PlotOptions} */ { onZoom }) {
  const { left, width } = self.select;
  if (width < 4) return;
  self.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  onZoom([self.posToVal(left, "x"), self.posToVal(left + width, "x")]);
}

/** The wheel with Ctrl zooms about the pointer; with Shift it pans, as dragging with Shift does. */
function panAndZoom(
  /** @type {uPlot} */ plot,
  /** @type {() => {onZoom: PlotOptions["onZoom"], isLogX: boolean, visible: [number, number], whole: [number, number]}} */ current,
) {
  plot.over.addEventListener(
    "wheel",
    (/** @type {WheelEvent} */ event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      const { onZoom, whole, visible, isLogX } = current();
      const amount = (event.deltaY || event.deltaX) / 500;
      const part = event.offsetX / plot.over.clientWidth;
      const factor = Math.exp(amount);
      onZoom(
        moved(visible, whole, isLogX, (from, to) => {
          const width = to - from;
          if (event.shiftKey) return [from + amount * width, to + amount * width];
          const centre = from + part * width;
          return [centre - part * width * factor, centre + (1 - part) * width * factor];
        }),
      );
    },
    { passive: false },
  );
}

/** Lets the curve stand out that is under the pointer. A chart of one curve has nothing to tell apart. */
function pointAtCurves(/** @type {uPlot} */ plot, /** @type {() => Trace[]} */ current) {
  plot.over.addEventListener("pointermove", ({ offsetX: left, offsetY: top, buttons }) => {
    const traces = current();
    if (traces.length < 2 || buttons !== 0) return;
    const positionOf = (/** @type {Trace} */ { places, means, smooth }, /** @type {number} */ index) =>
      /** @type {[number, number]} */ ([plot.valToPos(places[index], "x"), plot.valToPos((smooth ?? means)[index], "y")]);
    highlight(traceAt(traces, { x: plot.posToVal(left, "x"), left, top }, positionOf, REACH)?.key ?? null);
  });
  plot.over.addEventListener("pointerleave", () => highlight(null));
}

/** The steps between the ticks of time, in seconds, as on a clock. */
const CLOCK = [
  1,
  2,
  5,
  10,
  15,
  30,
  60,
  120,
  300,
  600,
  900,
  1800,
  3600,
  7200,
  10800,
  21600,
  43200,
  ...[1, 2, 5, 10, 20, 50, 100].map((days) => days * 86400),
];

/** The steps between the ticks of whole numbers. */
const WHOLE = Array.from({ length: 16 }, (_, exponent) => [1, 2, 5].map((digit) => digit * 10 ** exponent)).flat();

/** @returns {Partial<uPlot.Axis>} */
const ticksOf = (/** @type {PlotOptions["axis"]} */ axis) =>
  axis === "time"
    ? { incrs: CLOCK, space: 70, values: (_, splits) => splits.map((value) => (value === null ? "" : clockTime(value))) }
    : { incrs: axis === "steps" ? WHOLE : undefined, values: (_, splits) => splits.map((value) => (value === null ? "" : shortNumber(value))) };

/** Seconds as m:ss, h:mm:ss, or days and hours. */
function clockTime(/** @type {number} */ seconds) {
  if (seconds < 0) return "";
  const two = (/** @type {number} */ number) => String(Math.floor(number)).padStart(2, "0");
  if (seconds < 3600) return `${Math.floor(seconds / 60)}:${two(seconds % 60)}`;
  if (seconds < 2 * 86400) return `${Math.floor(seconds / 3600)}:${two((seconds % 3600) / 60)}:${two(seconds % 60)}`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

function shortNumber(/** @type {number} */ value) {
  if (Math.abs(value) >= 1e6) return `${formatNumber(value / 1e6)}M`;
  return Math.abs(value) >= 1e4 ? `${formatNumber(value / 1e3)}k` : formatNumber(value);
}

const widthOfLabels = (/** @type {uPlot} */ _, /** @type {string[] | null} */ values) =>
  16 + 6.5 * Math.max(3, ...(values ?? []).map((value) => value.length));
