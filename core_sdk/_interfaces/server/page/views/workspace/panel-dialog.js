/** The window with the settings of one chart. */

import { html, useEffect, useState } from "../../preact.js";
import { Select } from "../../parts/choice.js";
import { Dialog } from "../../parts/dialog.js";
import { withText } from "../../parts/field.js";
import { address } from "../../state/api.js";
import { once, useAnswer } from "../../state/answers.js";
import { Place } from "../runs/filter.js";
import { matcher, metricsOf } from "./panels.js";
/** @import { MetricNames } from "./metric-names.js" */
/** @import { Panel } from "./panels.js" */

/** The largest number of metrics that are listed to choose from. */
const MOST_LISTED = 200;

const SCALES = [
  ["", "as in the view"],
  ["0", "linear"],
  ["1", "logarithmic"],
];

/** @param {{panel: Panel, metrics: MetricNames, onSave: (panel: Panel) => void, onClose: () => void}} props */
export function PanelDialog({ panel, metrics: { names: metrics, choices, readAll }, onSave, onClose }) {
  useEffect(readAll, []);
  const [draft, setDraft] = useState(panel);
  const [ends, setEnds] = useState(panel.y.map((end) => (end === null ? "" : String(end))));
  const [search, setSearch] = useState("");
  const change = (/** @type {Partial<Panel>} */ next) => setDraft({ ...draft, ...next });
  const set = (/** @type {"title" | "re" | "formula" | "note" | "x" | "logx" | "log"} */ name) => (/** @type {string} */ value) =>
    change({ [name]: value });
  const listed = metrics.filter(matcher(search));
  const numMatches = draft.re === "" ? 0 : metrics.filter(matcher(draft.re)).length;
  const names = metricsOf(draft, metrics);
  const checked = useAnswer(draft.formula ? address(["formula"], { formula: draft.formula, metrics: names }) : null, { ...once, about: "formula" });
  const problem = checked.error ?? checked.value?.problem ?? null;
  const isWrong = draft.formula ? checked.isLoading || problem !== null : names.length === 0;
  const areNumbers = ends.every((end) => end.trim() === "" || Number.isFinite(Number(end)));
  const save = () => {
    const [low, high] = ends.map((end) => (end.trim() === "" ? null : Number(end)));
    onSave({ ...draft, y: [low, high] });
  };
  return html`
    <${Dialog} title="Settings of the chart" onClose=${onClose}>
      <div class="dialog-body">
        <label class="field"><span>Title</span><input type="text" value=${draft.title} onInput=${withText(set("title"))} /></label>
        <label class="field">
          <span>Metrics by regular expression ${draft.re && html`<span class="soft" role="status">${numMatches} of ${metrics.length}</span>`}</span>
          <input type="text" class="mono" placeholder="^validation\\..*loss$" value=${draft.re} onInput=${withText(set("re"))} />
        </label>
        <input type="search" placeholder="Find metrics" aria-label="Find metrics to choose" value=${search} onInput=${withText(setSearch)} />
        <ul class="column-list short" aria-label="Metrics">
          ${listed.slice(0, MOST_LISTED).map(
            (name) => html`
              <li key=${name}>
                <label><input type="checkbox" checked=${draft.of.includes(name)} onChange=${() => change({ of: draft.of.includes(name) ? draft.of.filter((one) => one !== name) : [...draft.of, name] })} />${name}</label>
              </li>
            `,
          )}
        </ul>
        ${listed.length > MOST_LISTED && html`<p class="soft">There are ${(listed.length - MOST_LISTED).toLocaleString("en-US")} more: write a part of the name.</p>`}
        <label class="field">
          <span>Formula, in the place of metrics</span>
          <input type="text" class=${`mono ${problem ? "wrong" : ""}`} placeholder="validation.loss - training.loss" aria-invalid=${problem !== null} spellcheck=${false} value=${draft.formula} onInput=${withText((text) => change({ formula: text.trim() === "" ? "" : text }))} />
        </label>
        ${problem && html`<div class="formula-problem" role="status"><${Place} text=${draft.formula} place=${problem.place} />${problem.message}</div>`}
        <div class="row">
          <${Select} label="Horizontal axis" values=${[["", "as in the view"], ...["steps", "time", "epochs", ...choices].map((name) => [name, name])]} value=${draft.x} onChange=${set("x")} />
          <${Select} label="Its scale" values=${SCALES} value=${draft.logx} onChange=${set("logx")} />
          <${Select} label="Vertical scale" values=${SCALES} value=${draft.log} onChange=${set("log")} />
        </div>
        <div class="row">
          ${["Lowest value", "Highest value"].map(
            (name, index) => html`
              <label class="select"><span>${name}</span><input type="text" inputmode="decimal" class="limit" placeholder="automatic" value=${ends[index]} onInput=${withText((text) => setEnds(ends.map((end, at) => (at === index ? text : end))))} /></label>
            `,
          )}
          ${!areNumbers && html`<span class="warning" role="status">The ends are numbers, or empty.</span>`}
        </div>
        <label class="field"><span>Caption</span><textarea rows="2" value=${draft.note} onInput=${withText(set("note"))}></textarea></label>
      </div>
      <div class="dialog-feet">
        <button onClick=${onClose}>Cancel</button>
        <button class="primary" disabled=${!areNumbers || isWrong} onClick=${save}>Save</button>
      </div>
    <//>
  `;
}
