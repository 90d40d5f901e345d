/** A small plot of one value against another, with a point for each trial. */

import { html } from "../../preact.js";
import { go, linkTo } from "../../state/place.js";
import { Figure, useRamp } from "./figure.js";
import { rampColour } from "./scale.js";
/** @import { Drawn, Scale } from "./scale.js" */

const MARGIN = { left: 58, right: 12, top: 8, bottom: 26 };

/**
 * @param {object} props
 * @param {Scale} props.x
 * @param {Scale} props.y
 * @param {Scale} props.metric What the colours say.
 * @param {Drawn[]} props.trials
 * @param {number} [props.width]
 * @param {number} [props.height]
 */
export function Scatter({ x, y, metric, trials, width = 300, height = 220 }) {
  const ramp = useRamp();
  const left = (/** @type {number} */ place) => MARGIN.left + place * (width - MARGIN.left - MARGIN.right);
  const top = (/** @type {number} */ place) => height - MARGIN.bottom - place * (height - MARGIN.top - MARGIN.bottom);
  const points = trials
    .map(({ id, values }) => ({ id, at: x.place(values[x.name]), value: y.place(values[y.name]), shade: metric.place(values[metric.name]) }))
    .filter(({ at, value }) => !Number.isNaN(at) && !Number.isNaN(value));
  const every = Math.ceil(x.ticks.length / 4);
  const ticksX = x.ticks.filter((_, index) => index % every === 0);
  return html`
    <${Figure} title=${`${y.title} by ${x.title}`} description=${`Scatter plot of ${y.title} against ${x.title}, ${points.length} trials`} width=${width} height=${height}>
      ${y.ticks.map(({ place, text }) => html`<path class="grid-line" d=${`M${MARGIN.left} ${top(place)}H${width - MARGIN.right}`} /><text class="axis-tick" x=${MARGIN.left - 6} y=${top(place) + 4} text-anchor="end">${text.slice(0, 9)}</text>`)}
      ${ticksX.map(({ place, text }) => html`<text class="axis-tick" x=${left(place)} y=${height - 8} text-anchor=${place < 0.05 ? "start" : place > 0.95 ? "end" : "middle"}>${text.slice(0, 12)}</text>`)}
      ${points.map(({ id, at, value, shade }) => html`<circle class="point" key=${id} cx=${left(at)} cy=${top(value)} r="3.5" fill=${rampColour(shade, ramp)} onClick=${() => go(linkTo(["trials", id]))}><title>trial ${id}</title></circle>`)}
    <//>
  `;
}
