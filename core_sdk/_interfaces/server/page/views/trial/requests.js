/** What people have asked of the machine that has sent the trial to a workspace. */

import { html } from "../../preact.js";
import { formatTime } from "../../parts/text.js";
import { useAnswer } from "../../state/answers.js";
import { address } from "../../state/api.js";
import { Card } from "../facts.js";
/** @import { RequestRow } from "api" */
/** @import { Change } from "../../state/events.js" */

const MOST_SHOWN = 10;
const WORDS = { waits: "that machine has not answered yet", done: "done", refused: "refused", expired: "void: that machine was not heard for a day" };

/** @param {{trialId: number}} props */
export function Requests({ trialId }) {
  const follows = (/** @type {Change} */ { trials }) => trials.includes(trialId);
  const { value } = useAnswer(address(["trials", trialId, "requests"]), { follows, about: `requests ${trialId}` });
  const requests = value?.requests.slice(-MOST_SHOWN).reverse() ?? [];
  return requests.length > 0 ? html`<${Card} title="Asked from a workspace" facts=${requests.map(factOf)} />` : null;
}

/** What was asked, and what came of it. @param {RequestRow} request @returns {[string, string]} */
export function factOf({ verb, by, time, outcome, message }) {
  return [`${verb} by ${by}, ${formatTime(time)}`, [WORDS[outcome], message].filter(Boolean).join(": ")];
}
