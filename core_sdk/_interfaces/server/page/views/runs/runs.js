/** The table over all trials, or over all experiments. */

import { html } from "../../preact.js";
import { useSetting } from "../../state/place.js";
import { Experiments } from "./experiments.js";
import { Trials } from "./trials-table.js";

export function Runs() {
  const [kind] = useSetting("kind", "trials");
  return html`
    <section class="view runs" aria-label="Runs">
      <h1 class="unseen">Runs</h1>
      ${kind === "experiments" ? html`<${Experiments} />` : html`<${Trials} />`}
    </section>
  `;
}
