/** The filter's box: the condition is checked by the server, which says where it does not parse. */

import { html, useEffect, useRef, useState } from "../../preact.js";
import { isEnter, withText } from "../../parts/field.js";
/** @import { ApiError } from "../../state/api.js" */

const PAUSE_MS = 120;

/** @param {{where: string, onChange: (where: string) => void, error: ApiError | null, names: string[]}} props */
export function Filter({ where, onChange, error, names }) {
  const [text, setText] = useState(where);
  const timer = useRef(/** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined));
  useEffect(() => setText(where), [where]);
  const change = (/** @type {string} */ next, pauseMs = PAUSE_MS) => {
    setText(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onChange(next.trim()), pauseMs);
  };
  const problem = error?.kind === "bad_condition" ? error : null;
  return html`
    <div class="filter">
      <input
        type="text"
        class=${`mono ${problem ? "wrong" : ""}`}
        placeholder="Filter: loss < 0.3 and optimizer = adam"
        aria-label="Filter"
        aria-invalid=${Boolean(problem)}
        aria-describedby=${problem ? "filter-problem" : undefined}
        autocomplete="off"
        spellcheck=${false}
        list="filter-names"
        value=${text}
        onInput=${withText(change)}
        onKeyDown=${(/** @type {KeyboardEvent} */ event) => isEnter(event) && change(/** @type {HTMLInputElement} */ (event.target).value, 0)}
      />
      <datalist id="filter-names">${names.map((name) => html`<option value=${quoted(name)}></option>`)}</datalist>
      ${problem && html`<div class="filter-problem" id="filter-problem" role="alert"><${Place} text=${text} place=${problem.place} />${firstLine(problem.message)}</div>`}
    </div>
  `;
}

/** The text with a mark where it does not parse. @param {{text: string, place: number | undefined}} props */
export function Place({ text, place }) {
  if (place == null) return null;
  return html`<pre>${text.slice(0, place)}<mark>${text[place] ?? "␣"}</mark>${text.slice(place + 1)}</pre>`;
}

const firstLine = (/** @type {string} */ message) => message.split("\n")[0];
const quoted = (/** @type {string} */ name) => (/[\s()<>=!"']/.test(name) ? `"${name}"` : name);
