/** A plot: uPlot's axes, scales, zoom and cursor, with our curves drawn into them. */

import uPlot from "../vendor/uplot/uPlot.min.js";
import { colour } from "../state/theme.js";
import { formatNumber } from "../parts/text.js";
import { lineOf, rangeOfY, within } from "./curves.js";
/** @import { Trace } from "./curves.js" */

/**
 * @typedef {object} Mark
 * @property {number} x
 * @property {string} label
 * @property {string} [text] What is written beside the values while the pointer is at it.
 * @property {boolean} [isError]
 */

/**
 * @typedef {object} PlotOptions
 * @property {Trace[]} traces
 * @property {Mark[]} marks Vertical lines, for example where an attempt has begun.
 * @property {"steps" | "time" | "epochs"} axis
 * @property {boolean} isLogarithmic
 * @property {boolean} ignoresOutliers
 * @property {[number, number] | null} zoom The visible stretch of x; null shows everything.
 * @property {[number, number] | null} whole What a null shows, and where zooming out and panning end.
 * @property {number} width In pixels.
 * @property {number} height
 * @property {(value: number) => string} format How a value is written.
 * @property {(zoom: [number, number] | null) => void} onZoom
 * @property {(x: number | null, left: number) => void} onCursor The place under the pointer; null where it is outside.
 */

const FAINT = 0.28;
const BAND = 0.16;

/** What is visible where there is nothing. @type {[number, number]} */
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

/** A plot with the options. @param {HTMLElement} parent @param {PlotOptions} options @returns {Plot} */
export function createPlot(parent, options) {
  let now = options;
  const visible = () => now.zoom ?? now.whole ?? NOTHING;
  const scaleY = () => rangeOfY(now.traces, visible(), now) ?? (now.isLogarithmic ? NOTHING_LOGARITHMIC : NOTHING);
  const axisStyle = { stroke: colour("--axis"), font: `11px ${colour("--font")}` };
  const lines = { stroke: colour("--grid"), width: 1 };
  const tellCursor = (/** @type {uPlot} */ self) => now.onCursor(placeOfCursor(self), self.cursor.left ?? -1);
  // uPlot's own series only spans the axes: each of ours has places of its own, which uPlot would have to join.
  const span = () => /** @type {uPlot.AlignedData} */ ([visible(), [null, null]]);
  const plot = new uPlot(
    {
      width: options.width,
      height: options.height,
      padding: [8, 20, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false }, sync: { key: "page" } },
      scales: {
        x: { time: false, range: visible },
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
  panAndZoom(plot, () => ({ onZoom: now.onZoom, visible: visible(), whole: now.whole ?? NOTHING }));
  const update = (/** @type {PlotOptions} */ next) => {
    now = next;
    plot.setData(span());
    tellCursor(plot);
  };
  return { canvas: plot, update, destroy: () => plot.destroy() };
}

/** Draws marks and curves into a canvas whose pixels are `self`'s. */
function drawEverything(/** @type {uPlot} */ self, /** @type {PlotOptions} */ { traces, marks, isLogarithmic }) {
  const { ctx, bbox } = self;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  drawMarks(self, marks);
  for (const trace of traces) if (trace.isBand) drawBand(self, trace, isLogarithmic);
  for (const trace of [...traces].sort((one, other) => Number(other.isFaint) - Number(one.isFaint))) {
    drawTrace(self, trace, isLogarithmic);
  }
  ctx.restore();
}

function drawMarks(/** @type {uPlot} */ self, /** @type {PlotOptions["marks"]} */ marks) {
  const { ctx, bbox } = self;
  ctx.textAlign = "left";
  ctx.font = `${10 * devicePixelRatio}px ${colour("--font")}`;
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const { x, label, isError } of marks) {
    ctx.strokeStyle = colour(isError ? "--error" : "--line-strong");
    ctx.fillStyle = colour(isError ? "--error" : "--text-soft");
    const left = Math.round(self.valToPos(x, "x", true)) + 0.5;
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
    ctx.stroke();
    ctx.fillText(label, left + 3 * devicePixelRatio, bbox.top + 10 * devicePixelRatio);
  }
  ctx.setLineDash([]);
}

/** Fills what lies between the ends of the band; on a logarithmic axis it goes down to the lower end of the plot. */
function drawBand(/** @type {uPlot} */ self, /** @type {Trace} */ { places, lows, highs, colour: name }, /** @type {boolean} */ isLogarithmic) {
  const { ctx, bbox } = self;
  const top = (/** @type {number} */ value) => (isLogarithmic && value <= 0 ? bbox.top + bbox.height : self.valToPos(value, "y", true));
  const left = (/** @type {number} */ index) => self.valToPos(places[index], "x", true);
  ctx.beginPath();
  for (let index = 0; index < places.length; index += 1) ctx.lineTo(left(index), top(highs[index]));
  for (let index = places.length - 1; index >= 0; index -= 1) ctx.lineTo(left(index), top(lows[index]));
  ctx.closePath();
  ctx.globalAlpha = BAND;
  ctx.fillStyle = ctx.strokeStyle = colour(name);
  ctx.lineWidth = devicePixelRatio;
  ctx.fill();
  // The band of a single point has no area.
  ctx.stroke();
  ctx.globalAlpha = 1;
}

function drawTrace(/** @type {uPlot} */ self, /** @type {Trace} */ trace, /** @type {boolean} */ isLogarithmic) {
  const { ctx } = self;
  ctx.strokeStyle = colour(trace.colour);
  ctx.lineJoin = "round";
  ctx.globalAlpha = trace.isFaint || trace.smooth ? FAINT : 1;
  ctx.lineWidth = (trace.isBand ? 1.75 : 1.25) * devicePixelRatio;
  ctx.setLineDash(trace.dash.map((length) => length * devicePixelRatio));
  strokePath(self, trace, isLogarithmic, lineOf(trace));
  if (trace.smooth) {
    ctx.globalAlpha = trace.isFaint ? FAINT : 1;
    ctx.lineWidth = 1.75 * devicePixelRatio;
    strokePath(self, trace, isLogarithmic, [trace.smooth]);
  }
  ctx.setLineDash([]);
  ctx.globalAlpha = 1;
}

/**
 * One line through the extremes of each bucket, or through one value of it. Values that are not finite interrupt it.
 * @param {uPlot} self
 * @param {Trace} trace
 * @param {boolean} isLogarithmic
 * @param {Float64Array[]} columns
 */
function strokePath(self, { places }, isLogarithmic, columns) {
  const { ctx } = self;
  const isDrawable = (/** @type {number} */ value) => Number.isFinite(value) && (!isLogarithmic || value > 0);
  let isInterrupted = true;
  let numSinceGap = 0;
  let left = 0;
  let top = 0;
  const dots = new Path2D();
  const endStretch = () => {
    if (numSinceGap !== 1) return;
    // A lone point has no line: it is a dot.
    const radius = 2.5 * devicePixelRatio;
    dots.moveTo(left + radius, top);
    dots.arc(left, top, radius, 0, 2 * Math.PI);
  };
  ctx.beginPath();
  for (let index = 0; index < places.length; index += 1) {
    for (const column of columns[0][index] === columns[columns.length - 1][index] ? columns.slice(0, 1) : columns) {
      const value = column[index];
      if (!isDrawable(value)) {
        endStretch();
        isInterrupted = true;
        continue;
      }
      left = self.valToPos(places[index], "x", true);
      top = self.valToPos(value, "y", true);
      if (isInterrupted) {
        ctx.moveTo(left, top);
        numSinceGap = 0;
      } else ctx.lineTo(left, top);
      numSinceGap += 1;
      isInterrupted = false;
    }
  }
  endStretch();
  ctx.stroke();
  ctx.fillStyle = ctx.strokeStyle;
  ctx.fill(dots);
}

function chooseZoom(/** @type {uPlot} */ self, /** @type {PlotOptions} */ { onZoom }) {
  const { left, width } = self.select;
  if (width < 4) return;
  self.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  onZoom([self.posToVal(left, "x"), self.posToVal(left + width, "x")]);
}

/** The wheel with Ctrl zooms about the pointer; with Shift it pans, as dragging with Shift does. */
function panAndZoom(
  /** @type {uPlot} */ plot,
  /** @type {() => {onZoom: PlotOptions["onZoom"], visible: [number, number], whole: [number, number]}} */ current,
) {
  plot.over.addEventListener(
    "wheel",
    (/** @type {WheelEvent} */ event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      const {
        onZoom,
        whole,
        visible: [from, to],
      } = current();
      const amount = (event.deltaY || event.deltaX) / 500;
      if (event.shiftKey) return onZoom(within([from + amount * (to - from), to + amount * (to - from)], whole));
      const centre = plot.posToVal(event.offsetX, "x");
      const factor = Math.exp(amount);
      onZoom(within([centre - (centre - from) * factor, centre + (to - centre) * factor], whole));
    },
    { passive: false },
  );
}

function placeOfCursor(/** @type {uPlot} */ self) {
  const { left } = self.cursor;
  return left == null || left < 0 ? null : self.posToVal(left, "x");
}

/** The steps between the ticks of time, in seconds: those of a clock. */
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
    ? { incrs: CLOCK, space: 70, values: (_, splits) => splits.map(clockTime) }
    : { incrs: axis === "steps" ? WHOLE : undefined, values: (_, splits) => splits.map(shortNumber) };

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
