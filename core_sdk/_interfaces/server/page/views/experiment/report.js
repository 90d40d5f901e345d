/** An experiment as one document, as `core-sdk report` writes it. A link may open it, and nothing else. */

import { html } from "../../preact.js";
import { Answered, Title } from "../../parts/states.js";
import { address } from "../../state/api.js";
import { once, useAnswer } from "../../state/answers.js";
/** @import { ReportAnswer } from "api" */

/** @param {{id: string}} props */
export function Report({ id }) {
  const answer = useAnswer(address(["experiments", id, "report"]), once);
  return html`
    <section class="view" aria-label=${`Report of experiment ${id}`}>
      <${Title} text=${`Report of experiment ${id}`} />
      <${Answered} answer=${answer} what=${`the report of experiment ${id}`}>
        ${(/** @type {ReportAnswer} */ { html: source }) => html`<${Document} source=${source} />`}
      <//>
    </section>
  `;
}

/** A document without scripts, in a frame that reaches neither this page nor the network. @param {{source: string}} props */
function Document({ source }) {
  const give = (/** @type {Event} */ { target }) => /** @type {HTMLIFrameElement} */ (target).contentWindow?.postMessage(source, "*");
  return html`<iframe class="report-frame" src="frame.html" sandbox="allow-scripts" title="Report" onLoad=${give}></iframe>`;
}
