/** Where the time of a trial or of an experiment went, as one bar with its phases. */

import { html } from "../preact.js";
import { seriesColour } from "../charts/palette.js";
import { formatDuration } from "../parts/text.js";
import { useAnswer } from "../state/answers.js";
import { styleColour } from "../state/theme.js";
/** @import { Address, PhaseTime, TimeAnswer } from "api" */
/** @import { Change } from "../state/events.js" */

/**
 * @typedef {object} Segment
 * @property {string} name
 * @property {number} ms
 * @property {number} percent Of the bar, which leaves out the time that was stopped on purpose.
 * @property {string} colour
 */

/** The phases that took some time, in the order of the bar. @param {PhaseTime[]} phases @returns {Segment[]} */
export function segmentsOf(phases) {
  return phases
    .map(({ name, ms, share }, index) => ({ name, ms, percent: 100 * (share ?? 0), colour: seriesColour(index) }))
    .filter(({ ms }) => ms > 0);
}

/** @param {{address: Address<TimeAnswer>, follows: (change: Change) => boolean, about: string}} props */
export function Time({ address, follows, about }) {
  const { value } = useAnswer(address, { follows, about });
  return value && value.wall_ms > 0 ? html`<${TimeCard} time=${value} />` : null;
}

/** @param {{time: TimeAnswer}} props */
function TimeCard({ time }) {
  const segments = segmentsOf(time.phases);
  return html`
    <section class="card">
      <h2>Where the time went</h2>
      <div class="time-bar" role="img" aria-label=${time.words}>
        ${segments.map(({ percent, colour }) => html`<i style=${{ width: `${percent}%`, background: styleColour(colour) }}></i>`)}
      </div>
      <dl class="facts">
        ${segments.map(
          ({ name, ms, percent, colour }) => html`
            <dt><i class="time-swatch" style=${{ background: name === "stopped" ? "none" : styleColour(colour) }}></i>${name}</dt>
            <dd class="tabular">${formatDuration(ms / 1000)}${name !== "stopped" && html` <span class="soft">${percent.toFixed(1)} %</span>`}</dd>
          `,
        )}
      </dl>
      <p class="soft">${time.words}</p>
      ${time.machine && html`<p class="soft">${time.machine}</p>`}
    </section>
  `;
}
