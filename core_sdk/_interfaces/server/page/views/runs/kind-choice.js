/** Chooses between trials and experiments as rows of the table. */

import { html } from "../../preact.js";
import { Choice } from "../../parts/choice.js";
import { go, linkTo } from "../../state/place.js";

/** The other kind begins without the settings of this one. @param {{kind: string}} props */
export function KindChoice({ kind }) {
  return html`
    <${Choice}
      label="Kind of row"
      values=${[
        ["trials", "Trials"],
        ["experiments", "Experiments"],
      ]}
      value=${kind}
      onChange=${(/** @type {string} */ next) => go(linkTo(["runs"], { kind: next === "trials" ? null : next }))}
    />
  `;
}
