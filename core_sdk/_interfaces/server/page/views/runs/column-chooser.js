/** The window in which the columns of the table and their order are chosen. */

import { html, useState } from "../../preact.js";
import { Dialog } from "../../parts/dialog.js";
import { withText } from "../../parts/field.js";
import { useAnswer } from "../../state/answers.js";
import { address } from "../../state/api.js";
import { allColumns } from "./columns.js";
/** @import { Column } from "../../parts/grid.js" */
/** @import { Run } from "./grouping.js" */

/**
 * @param {object} props
 * @param {Map<string, Column<Run>>} props.all
 * @param {import("api").QueryOf<readonly ["columns"]>} props.described The trials whose columns these are.
 * @param {boolean} props.hasMore Whether they have further columns, which only a search finds.
 * @param {string[]} props.chosen
 * @param {string[]} props.standard
 * @param {(names: string[]) => void} props.onChoose
 * @param {() => void} props.onClose
 */
export function ColumnChooser({ all: first, described, hasMore, chosen, standard, onChoose, onClose }) {
  const [search, setSearch] = useState("");
  const found = useAnswer(hasMore && search ? address(["columns"], { ...described, search }) : null).value;
  const all = new Map([...first, ...(found ? allColumns(found.columns) : [])]);
  const rest = [...all.keys()].filter((name) => !chosen.includes(name));
  const fits = (/** @type {string} */ name) => name.toLowerCase().includes(search.toLowerCase());
  const swap = (/** @type {number} */ index, /** @type {number} */ other) => {
    const next = [...chosen];
    [next[index], next[other]] = [next[other], next[index]];
    onChoose(next);
  };
  return html`
    <${Dialog} title="Columns" onClose=${onClose}>
      <div class="dialog-body">
        <input type="search" placeholder="Find a metric or a hyperparameter" aria-label="Find a column" value=${search} onInput=${withText(setSearch)} />
        <ul class="column-list" aria-label="Columns">
          ${chosen.filter(fits).map((name) => {
            const index = chosen.indexOf(name);
            return html`
              <li key=${name}>
                <label><input type="checkbox" checked onChange=${() => onChoose(chosen.filter((one) => one !== name))} />${all.get(name)?.title}</label>
                <button class="quiet small" aria-label=${`Move ${name} to the left`} disabled=${index === 0} onClick=${() => swap(index, index - 1)}>↑</button>
                <button class="quiet small" aria-label=${`Move ${name} to the right`} disabled=${index === chosen.length - 1} onClick=${() => swap(index, index + 1)}>↓</button>
              </li>
            `;
          })}
          ${rest.filter(fits).map(
            (name) => html`
              <li key=${name}>
                <label><input type="checkbox" checked=${false} onChange=${() => onChoose([...chosen, name])} />${all.get(name)?.title}</label>
              </li>
            `,
          )}
        </ul>
        ${hasMore && (!search || found?.next != null) && html`<p class="soft">There are more: write a part of the name.</p>`}
      </div>
      <div class="dialog-feet">
        <button onClick=${() => onChoose(standard)}>As at first</button>
        <button class="primary" onClick=${onClose}>Done</button>
      </div>
    <//>
  `;
}
