/** Parallel coordinates: an axis for each hyperparameter and the metric, a line for each trial, brushed by ranges. */

import { html, useMemo, useRef } from "../../preact.js";
import { go, linkTo } from "../../state/place.js";
import { own } from "../../parts/own.js";
import { Figure, useRamp } from "./figure.js";
import { rampColour } from "./scale.js";
/** @import { Drawn, Scale } from "./scale.js" */
/** @import { ComponentChildren } from "preact" */

const HEIGHT = 340;
const TOP = 34;
const BOTTOM = 24;
const SIDE = 70;
/** The largest width of a character of a name, roughly. */
const CHARACTER = 8;

/** @typedef {Record<string, [number, number]>} Ranges The chosen part of each axis, from 0 to 1. */

/**
 * @param {object} props
 * @param {Scale[]} props.scales The last one is the metric's.
 * @param {Drawn[]} props.trials
 * @param {number} props.width
 * @param {Ranges} props.ranges
 * @param {(ranges: Ranges) => void} props.onRanges
 * @param {ComponentChildren} [props.after]
 */
export function ParallelCoordinates({ scales, trials, width, ranges, onRanges, after }) {
  const ramp = useRamp();
  const metric = scales[scales.length - 1];
  const step = (width - 2 * SIDE) / Math.max(1, scales.length - 1);
  const left = (/** @type {number} */ index) => SIDE + index * step;
  const top = (/** @type {number} */ place) => TOP + (1 - place) * (HEIGHT - TOP - BOTTOM);
  const lines = useMemo(
    () =>
      trials.map(({ id, values }) => {
        const places = scales.map(({ name, place }) => place(values[name]));
        return { id, places, isWithin: isWithin(scales, places, ranges) };
      }),
    [trials, scales, ranges],
  );
  const drawn = [...lines].sort((one, other) => Number(one.isWithin) - Number(other.isWithin));
  const numWithin = lines.filter(({ isWithin: is }) => is).length;
  return html`
    <${Figure}
      title="Parallel coordinates"
      description=${`Parallel coordinates of ${trials.length} trials over ${scales.map(({ title }) => title).join(", ")}; ${numWithin} are within the chosen ranges.`}
      width=${width}
      height=${HEIGHT}
      after=${after}
    >
      <g fill="none">
        ${drawn.map(
          ({ id, places, isWithin: is }) => html`
            <path
              class=${`coordinate ${is ? "" : "outside"}`}
              key=${id}
              d=${pathOf(places, left, top)}
              stroke=${rampColour(metric.place(trials.find((trial) => trial.id === id)?.values[metric.name]), ramp)}
              onClick=${() => go(linkTo(["trials", id]))}
            ><title>trial ${id}</title></path>
          `,
        )}
      </g>
      ${scales.map((scale, index) => html`<${Axis} key=${scale.name} scale=${scale} left=${left(index)} top=${top} range=${own(ranges, scale.name)} onRange=${(/** @type {[number, number] | null} */ range) => onRanges(changed(ranges, scale.name, range))} isLast=${index === scales.length - 1} room=${step} />`)}
    <//>
  `;
}

/**
 * @param {object} props
 * @param {Scale} props.scale
 * @param {number} props.left
 * @param {(place: number) => number} props.top
 * @param {[number, number] | undefined} props.range
 * @param {(range: [number, number] | null) => void} props.onRange
 * @param {boolean} props.isLast
 * @param {number} props.room
 */
function Axis({ scale: { title: name, ticks }, left, top, range, onRange, isLast, room }) {
  const most = Math.max(3, Math.min(18, Math.floor(room / CHARACTER)));
  const start = useRef(/** @type {number | null} */ (null));
  const placeOf = (/** @type {PointerEvent} */ event) => {
    const { top: above, height } = /** @type {Element} */ (event.currentTarget).getBoundingClientRect();
    return Math.min(1, Math.max(0, 1 - (event.clientY - above) / height));
  };
  const brush = (/** @type {PointerEvent} */ event) => {
    if (start.current === null) return;
    const place = placeOf(event);
    const [low, high] = [Math.min(start.current, place), Math.max(start.current, place)];
    onRange(high - low < 0.02 ? null : [low, high]);
  };
  return html`
    <g>
      <text class="axis-name" x=${left} y="16" text-anchor="middle">${name.length > most ? `${name.slice(0, most - 1)}…` : name}<title>${name}</title></text>
      <path class="axis-line" d=${`M${left} ${top(1)}V${top(0)}`} />
      ${ticks.map(({ place, text }) => html`<text class="axis-tick" x=${left + (isLast ? 8 : -8)} y=${top(place) + 4} text-anchor=${isLast ? "start" : "end"}>${text.length > 9 ? `${text.slice(0, 8)}…` : text}</text>`)}
      ${range && html`<rect class="brush" x=${left - 7} y=${top(range[1])} width="14" height=${Math.max(2, top(range[0]) - top(range[1]))} />`}
      <rect
        class="brush-area"
        x=${left - 12}
        y=${top(1)}
        width="24"
        height=${top(0) - top(1)}
        onPointerDown=${(/** @type {PointerEvent} */ event) => {
          /** @type {Element} */ (event.currentTarget).setPointerCapture(event.pointerId);
          start.current = placeOf(event);
        }}
        onPointerMove=${brush}
        onPointerUp=${(/** @type {PointerEvent} */ event) => {
          brush(event);
          start.current = null;
        }}
      ><title>Drag to choose a range of ${name}; a click chooses all of it.</title></rect>
    </g>
  `;
}

/** Returns whether a trial lies within the ranges of all axes. */
export function isWithin(/** @type {Scale[]} */ scales, /** @type {number[]} */ places, /** @type {Ranges} */ ranges) {
  return scales.every(({ name }, index) => {
    const range = own(ranges, name);
    return !range || (places[index] >= range[0] && places[index] <= range[1]);
  });
}

/** @param {Ranges} ranges @param {string} name @param {[number, number] | null} range @returns {Ranges} */
function changed(ranges, name, range) {
  const { [name]: _, ...others } = ranges;
  return range === null ? others : { ...others, [name]: range };
}

function pathOf(/** @type {number[]} */ places, /** @type {(index: number) => number} */ left, /** @type {(place: number) => number} */ top) {
  let path = "";
  let command = "M";
  places.forEach((place, index) => {
    if (Number.isNaN(place)) {
      command = "M";
      return;
    }
    path += `${command}${left(index).toFixed(1)} ${top(place).toFixed(1)}`;
    command = "L";
  });
  return path;
}
