/** What has happened since somebody last looked, and the messages that were sent about it. */

import { html, useMemo } from "../preact.js";
import { Select } from "../parts/choice.js";
import { Answered, Empty } from "../parts/states.js";
import { counted, formatAge, formatTime } from "../parts/text.js";
import { say, sayFailure } from "../parts/toast.js";
import { act, address } from "../state/api.js";
import { useAnswer } from "../state/answers.js";
import { useCanAct } from "../state/home.js";
import { linkTo, useSetting } from "../state/place.js";
/** @import { Happened, NightAnswer, SentMessage } from "api" */

/** @type {[string, string][]} */
const PERIODS = [
  ["", "the last look"],
  ["12", "12 hours ago"],
  ["72", "3 days ago"],
  ["168", "a week ago"],
];

export function Night() {
  const [hours, setHours] = useSetting("hours");
  const canAct = useCanAct();
  // One address for as long as the period is shown, so that it is not asked for again with each rendering.
  const since = useMemo(() => (hours ? Date.now() / 1000 - 3600 * Number(hours) : null), [hours]);
  const answer = useAnswer(address(["night"], { since }), { follows: ({ trials }) => trials.length > 0, about: `night ${hours}` });
  return html`
    <section class="view" aria-label="News">
      <div class="pane">
        <div class="row">
          <h1>News</h1>
          <${Select} label="Since" values=${PERIODS} value=${hours} onChange=${setHours} />
          <span class="soft" role="status">${answer.value && `since ${formatTime(answer.value.since)}`}</span>
          <span class="spread"></span>
          ${answer.value && canAct && html`<${Seen} until=${answer.value.until} onDone=${answer.reload} />`}
        </div>
        <${Answered} answer=${answer} what="the news">
          ${(/** @type {NightAnswer} */ { happened, time, sent }) => html`
            ${happened.length === 0 && html`<${Empty} title="Nothing has happened, and nothing runs." />`}
            ${happened.map((one) => html`<${Kind} key=${one.kind} happened=${one} />`)}
            ${time && html`<p class="soft">${time}</p>`}
            ${sent.length > 0 && html`<${Sent} sent=${sent} />`}
          `}
        <//>
      </div>
    </section>
  `;
}

/** Remembers that all this was seen. @param {{until: number, onDone: () => void}} props */
function Seen({ until, onDone }) {
  const look = async () => {
    try {
      say((await act(["night", "actions", "look"], { until })).message);
    } catch (error) {
      sayFailure(error);
    }
    onDone();
  };
  return html`<button onClick=${look}>Seen</button>`;
}

/** @param {{happened: Happened}} props */
const Kind = ({ happened: { kind, lines } }) => html`
  <section class="card spaced">
    <h2>${kind} <span class="soft">${lines.length}</span></h2>
    <ul>${lines.map((line) => html`<li>${withLink(line)}</li>`)}</ul>
  </section>
`;

/** A line that begins with a trial leads to it. @param {string} line */
function withLink(line) {
  const found = /^(trial (\d+))(.*)$/s.exec(line);
  return found ? html`<a href=${linkTo(["trials", found[2]])}>${found[1]}</a>${found[3]}` : line;
}

/** @param {{sent: SentMessage[]}} props */
const Sent = ({ sent }) => html`
  <section class="card spaced">
    <h2>Messages <span class="soft">${counted(sent.length, "message")}</span></h2>
    <div class="scroll-x" tabindex="0" role="region" aria-label="Messages that were sent">
      <table class="plain-table centred stacks">
        <thead><tr><th>Sent</th><th>To</th><th>Message</th></tr></thead>
        <tbody>
          ${sent.map(
            ({ time, target, problem, message: { title, body } }) => html`
              <tr>
                <td data-name="Sent" title=${formatTime(time)}>${formatAge(time)}</td>
                <td data-name="To">${target}${problem && html` <span class="reason">${problem}</span>`}</td>
                <td data-name="Message">${title}${body && html`<br /><span class="soft">${body}</span>`}</td>
              </tr>
            `,
          )}
        </tbody>
      </table>
    </div>
  </section>
`;
