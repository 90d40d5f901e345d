/** Notes in Markdown, which can be edited where they stand. */

import { html, useState } from "../preact.js";
import { withText } from "../parts/field.js";
import { Markdown } from "../parts/markdown.js";
import { byline } from "../parts/text.js";
import { say, sayFailure } from "../parts/toast.js";
import { ApiError } from "../state/api.js";
import { useMayChange } from "../state/home.js";

/** @param {{title?: string, notes: string, author?: string, home?: string, save: (notes: string, before: string) => Promise<unknown>, onSaved: () => void}} props `before` is the text that was edited. */
export function Notes({ title = "Notes", notes, author = "", home, save, onSaved }) {
  const [draft, setDraft] = useState(/** @type {string | null} */ (null));
  const [before, setBefore] = useState("");
  const [isContested, setIsContested] = useState(false);
  const canAct = useMayChange()({ home });
  const edit = () => {
    setDraft(notes);
    setBefore(notes);
    setIsContested(false);
  };
  const keep = async () => {
    try {
      await save(draft ?? "", before);
      setDraft(null);
      say(`${title}: saved.`);
      onSaved();
    } catch (error) {
      if (error instanceof ApiError && error.kind === "text_changed") {
        setBefore(error.present ?? "");
        setIsContested(true);
      } else sayFailure(error);
    }
  };
  return html`
    <section class="card spaced">
      <div class="row">
        <h2>${title}</h2>
        ${notes && html`<span class="soft">${byline(author)}</span>`}
        <span class="spread"></span>
        ${draft !== null && html`<button class="small" onClick=${() => setDraft(null)}>Cancel</button><button class="small primary" onClick=${keep}>Save</button>`}
        ${draft === null && canAct && html`<button class="small" onClick=${edit}>Edit</button>`}
      </div>
      ${
        draft !== null
          ? html`
              <textarea rows="14" aria-label=${`${title} in Markdown`} value=${draft} onInput=${withText(setDraft)}></textarea>
              ${
                isContested &&
                html`
                  <p role="alert">Somebody has changed this meanwhile, and nothing was saved. “Save” replaces their text, which is below, by yours.</p>
                  <textarea rows="8" readonly aria-label="Their text" value=${before}></textarea>
                `
              }
            `
          : notes
            ? html`<${Markdown} text=${notes} />`
            : html`<p class="soft">None yet. They are written in Markdown.</p>`
      }
    </section>
  `;
}
