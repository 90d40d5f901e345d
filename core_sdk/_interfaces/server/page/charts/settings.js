/** How the charts of a view are drawn: settings that the URL holds and that all of its charts share. */

import { html, useCallback, useMemo } from "../preact.js";
import { Choice, Select, Switch } from "../parts/choice.js";
import { Folded, useIsNarrow } from "../parts/folded.js";
import { changeSettings, useKeptSettings, usePlace, useSetting } from "../state/place.js";
import { withText } from "../parts/field.js";
/** @import { ComponentChildren } from "preact" */
/** @import { SoFar } from "./curves.js" */

const MAX_SMOOTHING = 0.99;
/** Pages that are at most so wide have no room for smoothing, and for adding charts, next to the tools of a list. */
const [NO_SMOOTHING, NO_ADDING, PHONE] = [1600, 1280, 760];
const VALUES = [
  ["", "as reported"],
  ["min", "smallest so far"],
  ["max", "largest so far"],
];

/**
 * @typedef {object} ChartSettings
 * @property {"steps" | "time" | "epochs"} axis
 * @property {number} smoothing
 * @property {SoFar} soFar
 * @property {boolean} isLogX
 * @property {boolean} isLogarithmic Whether the vertical axis is.
 * @property {boolean} ignoresOutliers
 * @property {[number, number] | null} zoom
 * @property {(zoom: [number, number] | null) => void} onZoom
 */

/** @returns {ChartSettings} */
export function useChartSettings() {
  const { query } = usePlace();
  const from = query.get("from");
  const to = query.get("to");
  const zoom = useMemo(() => zoomOf(from, to), [from, to]);
  const onZoom = useCallback((/** @type {[number, number] | null} */ next) => {
    changeSettings({ from: next && String(round(next[0])), to: next && String(round(next[1])) });
  }, []);
  return {
    axis: /** @type {ChartSettings["axis"]} */ (["time", "epochs"].includes(query.get("x") ?? "") ? query.get("x") : "steps"),
    smoothing: Math.min(MAX_SMOOTHING, Math.max(0, Number(query.get("smoothing")) || 0)),
    soFar: /** @type {SoFar} */ (["min", "max"].includes(query.get("sofar") ?? "") ? query.get("sofar") : ""),
    isLogX: query.get("logx") === "1",
    isLogarithmic: query.get("log") === "1",
    ignoresOutliers: query.get("outliers") === "0",
    zoom,
    onZoom,
  };
}

/** What a question for curves asks of a zoom: finer points there, of which the former answer has fewer. @param {ChartSettings["zoom"]} zoom */
export const finerIn = (zoom) => (zoom === null ? {} : { finer_from: zoom[0], finer_to: zoom[1] });

/**
 * The tools of charts, for a toolbar: those that are used most as far as there is room, and a box with all others.
 * @param {object} props
 * @param {ComponentChildren} [props.children] More settings, in the box.
 * @param {ComponentChildren} [props.search]
 * @param {ComponentChildren} [props.tools]
 * @param {boolean} [props.hasAxis]
 * @param {boolean} [props.hasSoFar] Groups have no best value so far.
 * @param {boolean} [props.isShared] Whether the toolbar also has the tools of a list.
 */
export function ChartTools({ children = null, search = null, tools = null, hasAxis = true, hasSoFar = true, isShared = false }) {
  const { axis, smoothing, soFar, isLogX, isLogarithmic, ignoresOutliers } = useChartSettings();
  const [, setSmoothing] = useSetting("smoothing", "0");
  useKeptSettings();
  const set = (/** @type {string} */ name) => (/** @type {boolean} */ isOn) =>
    changeSettings({ [name]: isOn ? (name === "outliers" ? "0" : "1") : null });
  const [isNarrow, noSmoothing, noAdding] = [PHONE, isShared ? NO_SMOOTHING : PHONE, isShared ? NO_ADDING : PHONE].map(useIsNarrow);
  const smoothness = html`
    <label class="select">
      <span>Smoothing</span>
      <input type="range" min="0" max=${MAX_SMOOTHING} step="0.01" value=${smoothing} onInput=${withText(setSmoothing)} />
      <output class="number smoothing">${smoothing.toFixed(2)}</output>
    </label>
  `;
  const axes =
    hasAxis &&
    html`
      <${Choice}
        label="Horizontal axis"
        values=${[
          ["steps", "Steps"],
          ["time", "Time"],
          ["epochs", "Epochs"],
        ]}
        value=${axis}
        onChange=${(/** @type {string} */ next) => changeSettings({ x: next === "steps" ? null : next, from: null, to: null })}
      />
    `;
  return html`
    ${!isNarrow && html`${axes}${search}`}
    ${!noSmoothing && smoothness}
    ${!noAdding && tools}
    <${Folded} label="Settings">
      ${isNarrow && html`${axes}${search}`}
      ${noSmoothing && smoothness}
      ${noAdding && tools}
      <${Switch} label="Log x" title="The horizontal axis is logarithmic." isOn=${isLogX} onChange=${set("logx")} />
      <${Switch} label="Log y" title="The vertical axis is logarithmic." isOn=${isLogarithmic} onChange=${set("log")} />
      <${Switch} label="Ignore outliers" title="The vertical axis leaves out the lowest and the highest 2 %." isOn=${ignoresOutliers} onChange=${set("outliers")} />
      ${hasSoFar && html`<${Select} label="Values" values=${VALUES} value=${soFar} onChange=${(/** @type {string} */ next) => changeSettings({ sofar: next || null })} />`}
      ${children}
    <//>
  `;
}

function zoomOf(/** @type {string | null} */ from, /** @type {string | null} */ to) {
  const zoom = [Number(from), Number(to)];
  return from !== null && to !== null && zoom[0] < zoom[1] ? /** @type {[number, number]} */ (zoom) : null;
}

const round = (/** @type {number} */ value) => Number(value.toPrecision(8));
