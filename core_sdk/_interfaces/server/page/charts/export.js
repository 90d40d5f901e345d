/** A chart as a picture or as a table, to keep or to send. */

import { colour } from "../state/theme.js";
import { csvText } from "../parts/saving.js";
import { escaped, formatDuration, formatNumber } from "../parts/text.js";
import { areasOf, limited, partOf, rangeOfX, rangeOfY, stretchesOf } from "./curves.js";
import { COUNT, DOT, linedMarks, TRIANGLE } from "./plot.js";
import { roundTicks } from "./ticks.js";
/** @import { default as uPlot } from "uplot" */
/** @import { Trace } from "./curves.js" */
/** @import { PlotOptions } from "./plot.js" */

const WIDTH = 900;
const HEIGHT = 420;
const MARGIN = { left: 70, right: 16, top: 36, bottom: 30 };

/** @typedef {Pick<PlotOptions, "traces" | "marks" | "axis" | "isLogX" | "isLogarithmic" | "limits" | "ignoresOutliers" | "zoom"> & {title: string}} Picture */

/** Returns what is seen of the chart, as an SVG. @param {Picture} picture */
export function svgOf({ title, traces, marks, axis, isLogX, isLogarithmic, limits, ignoresOutliers, zoom }) {
  const rangeX = zoom ?? rangeOfX(traces, isLogX) ?? [0.1, 1];
  const rangeY = limited(rangeOfY(traces, rangeX, { isLogarithmic, ignoresOutliers }) ?? [0.1, 1], limits, isLogarithmic);
  const legendTop = HEIGHT;
  const left = (/** @type {number} */ x) => MARGIN.left + partOf(x, rangeX, isLogX) * (WIDTH - MARGIN.left - MARGIN.right);
  const top = (/** @type {number} */ y) => HEIGHT - MARGIN.bottom - partOf(y, rangeY, isLogarithmic) * (HEIGHT - MARGIN.top - MARGIN.bottom);
  const labelOf = (/** @type {number} */ x) => (axis === "time" ? formatDuration(Math.max(0, x)) : formatNumber(x));
  const ticksX = roundTicks(...rangeX, isLogX);
  const ticksY = roundTicks(...rangeY, isLogarithmic);
  const shown = traces.filter(({ isFaint }) => !isFaint);
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${HEIGHT + 18 * shown.length}" font-family="sans-serif" font-size="12">`,
    `<rect width="100%" height="100%" fill="${colour("--surface")}"/>`,
    `<text x="${MARGIN.left}" y="22" font-size="14" font-weight="600" fill="${colour("--text")}">${inSvg(title)}</text>`,
    `<clipPath id="plot"><rect x="${MARGIN.left}" y="${MARGIN.top}" width="${WIDTH - MARGIN.left - MARGIN.right}" height="${HEIGHT - MARGIN.top - MARGIN.bottom}"/></clipPath>`,
    ...ticksY.map(
      (y) =>
        `<path d="M${MARGIN.left} ${round(top(y))}H${WIDTH - MARGIN.right}" stroke="${colour("--grid")}"/>` +
        `<text x="${MARGIN.left - 8}" y="${round(top(y) + 4)}" text-anchor="end" fill="${colour("--axis")}">${inSvg(formatNumber(y, 4))}</text>`,
    ),
    ...ticksX.map(
      (x) => `<text x="${round(left(x))}" y="${HEIGHT - 10}" text-anchor="middle" fill="${colour("--axis")}">${inSvg(labelOf(x))}</text>`,
    ),
    `<g clip-path="url(#plot)" fill="none">`,
    ...linedMarks(marks).map(
      ({ x, colour: name = "--line-strong" }) =>
        `<path d="M${round(left(x))} ${MARGIN.top}V${HEIGHT - MARGIN.bottom}" stroke="${colour(name)}" stroke-dasharray="3 3"/>`,
    ),
    ...traces.map((trace) => {
      const raw = drawn(trace, trace.means, left, top, `opacity="${trace.isFaint || trace.smooth ? 0.3 : 1}"`);
      return `${areaOf(trace, left, top)}${raw}${trace.smooth ? drawn(trace, trace.smooth, left, top, 'stroke-width="2"') : ""}`;
    }),
    ...marks.flatMap(({ x, colour: name, members }) => (name ? [triangle(left(x), colour(name), members.length)] : [])),
    "</g>",
    ...shown.map(
      ({ label, colour: name, dash }, index) =>
        `<path d="M${MARGIN.left} ${legendTop + 18 * index + 4}h18" stroke="${colour(name)}" stroke-width="3" stroke-dasharray="${dash.join(" ")}"/>` +
        `<text x="${MARGIN.left + 26}" y="${legendTop + 18 * index + 8}" fill="${colour("--text")}">${inSvg(label)}</text>`,
    ),
    "</svg>",
  ].join("\n");
}

/**
 * What is seen of the chart, as a PNG.
 * @param {uPlot} plot
 * @param {Picture} picture
 * @param {(blob: Blob) => void} done
 */
export function pngOf(plot, { title, traces }, done) {
  const { canvas } = plot.ctx;
  const scale = devicePixelRatio;
  const shown = traces.filter(({ isFaint }) => !isFaint);
  const legendHeight = shown.length > 1 ? 18 * shown.length * scale : 0;
  const picture = document.createElement("canvas");
  picture.width = canvas.width;
  picture.height = canvas.height + 28 * scale + legendHeight;
  const ctx = /** @type {CanvasRenderingContext2D} */ (picture.getContext("2d"));
  ctx.fillStyle = colour("--surface");
  ctx.fillRect(0, 0, picture.width, picture.height);
  ctx.fillStyle = colour("--text");
  ctx.font = `600 ${13 * scale}px ${colour("--font")}`;
  ctx.fillText(title, 10 * scale, 18 * scale);
  ctx.drawImage(canvas, 0, 26 * scale);
  ctx.font = `${12 * scale}px ${colour("--font")}`;
  ctx.lineWidth = 3 * scale;
  for (const [index, { label, colour: name, dash }] of legendHeight ? shown.entries() : []) {
    const top = canvas.height + (28 + 18 * index) * scale;
    ctx.strokeStyle = colour(name);
    ctx.setLineDash(dash.map((length) => length * scale));
    ctx.beginPath();
    ctx.moveTo(10 * scale, top + 6.5 * scale);
    ctx.lineTo(26 * scale, top + 6.5 * scale);
    ctx.stroke();
    ctx.fillStyle = colour("--text");
    ctx.fillText(label, 32 * scale, top + 11 * scale);
  }
  picture.toBlob((blob) => done(/** @type {Blob} */ (blob)), "image/png");
}

/** The buckets of all curves, or the points of all groups. @param {Trace[]} traces @param {string} axis */
export function csvOf(traces, axis) {
  const rows = traces.flatMap(({ label, isFaint, isBand, places, lows, highs, means, numTrials }) =>
    Array.from(places, (place, index) =>
      isBand
        ? [label, numTrials?.[index], place, lows[index], highs[index], means[index]]
        : [label, isFaint, place, lows[index], highs[index], means[index]],
    ),
  );
  const head = traces.some(({ isBand }) => isBand)
    ? ["group", "num_trials", axis, "low", "high", "centre"]
    : ["curve", "is_superseded", axis, "minimum", "maximum", "mean"];
  return csvText([head, ...rows]);
}

/** Returns the shape of what lies between the ends, down to the lower end of the plot where one has no logarithm. */
function areaOf(/** @type {Trace} */ trace, /** @type {(x: number) => number} */ left, /** @type {(y: number) => number} */ top) {
  if (!trace.hasArea) return "";
  const path = areasOf(trace, left, top, HEIGHT - MARGIN.bottom).map((corners) => `M${corners.map(round).join(" ")}z`);
  return `<path d="${path.join("")}" fill="${colour(trace.colour)}" opacity="${trace.isBand ? 0.16 : 0.4}"/>`;
}

/** A line, and a dot for each of its points that has no neighbour. */
function drawn(
  /** @type {Trace} */ trace,
  /** @type {Float64Array} */ values,
  /** @type {(x: number) => number} */ left,
  /** @type {(y: number) => number} */ top,
  /** @type {string} */ style,
) {
  const stroke = colour(trace.colour);
  const stretches = stretchesOf(trace, values, left, top).map((line) => line.map(round));
  const path = stretches.map(([x, y, ...rest]) => `M${x} ${y}${rest.length ? `L${rest.join(" ")}` : ""}`).join("");
  const dots = stretches.filter(({ length }) => length === 2).map(([x, y]) => `<circle cx="${x}" cy="${y}" r="${DOT}" fill="${stroke}"/>`);
  return `<g ${style}><path d="${path}" stroke="${stroke}" stroke-dasharray="${trace.dash.join(" ")}"/>${dots.join("")}</g>`;
}

function triangle(/** @type {number} */ left, /** @type {string} */ fill, /** @type {number} */ count) {
  const path = `<path d="M${round(left - TRIANGLE)} ${MARGIN.top}h${2 * TRIANGLE}l-${TRIANGLE} ${1.6 * TRIANGLE}z" fill="${fill}" stroke="${colour("--surface")}"/>`;
  return count === 1 ? path : `${path}<text x="${round(left)}" y="${MARGIN.top + COUNT}" text-anchor="middle" fill="${fill}">${count}</text>`;
}

const round = (/** @type {number} */ value) => Math.round(value * 10) / 10;

// Control characters are not allowed in XML.
const inSvg = (/** @type {string} */ text) => escaped(text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, "\ufffd"));
