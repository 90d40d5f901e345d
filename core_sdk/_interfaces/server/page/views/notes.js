/** Notes in Markdown, which can be edited where they stand. */

import { html, useState } from "../preact.js";
import { withText } from "../parts/field.js";
import { Markdown } from "../parts/markdown.js";
import { say, sayFailure } from "../parts/toast.js";
import { useCanAct } from "../state/home.js";

/** @param {{title?: string, notes: string, save: (notes: string) => Promise<unknown>, onSaved: () => void}} props */
export function Notes({ title = "Notes", notes, save, onSaved }) {
  const [draft, setDraft] = useState(/** @type {string | null} */ (null));
  const canAct = useCanAct();
  const keep = async () => {
    try {
      await save(draft ?? "");
      setDraft(null);
      say(`${title}: saved.`);
      onSaved();
    } catch (error) {
      sayFailure(error);
    }
  };
  return html`
    <section class="card spaced">
      <div class="row">
        <h2>${title}</h2>
        <span class="spread"></span>
        ${draft !== null && html`<button class="small" onClick=${() => setDraft(null)}>Cancel</button><button class="small primary" onClick=${keep}>Save</button>`}
        ${draft === null && canAct && html`<button class="small" onClick=${() => setDraft(notes)}>Edit</button>`}
      </div>
      ${
        draft !== null
          ? html`<textarea rows="14" aria-label=${`${title} in Markdown`} value=${draft} onInput=${withText(setDraft)}></textarea>`
          : notes
            ? html`<${Markdown} text=${notes} />`
            : html`<p class="soft">None yet. They are written in Markdown.</p>`
      }
    </section>
  `;
}
