/** A table over two hyperparameters: the mean and the standard deviation of a metric for each pair of values. */

import { html } from "../../preact.js";
import { Select } from "../../parts/choice.js";
import { csvText, saveFile } from "../../parts/saving.js";
import { Empty } from "../../parts/states.js";
import { formatNumber, formatValue } from "../../parts/text.js";
import { useSetting } from "../../state/place.js";
import { aggregateOf } from "../runs/grouping.js";
/** @import { Drawn, Scale } from "../../charts/search/scale.js" */
/** @import { Aggregate } from "../runs/grouping.js" */

const MAX_VALUES = 40;
const collator = new Intl.Collator("en", { numeric: true });

/** @typedef {{rows: string[], columns: string[], cells: (Aggregate | null)[][]}} PivotTable A cell for each row and column. */

/** @param {{scales: Scale[], metric: Scale, trials: Drawn[]}} props */
export function Pivot({ scales, metric, trials }) {
  const [chosenX, setAcross] = useSetting("hx");
  const [chosenY, setDown] = useSetting("hy");
  const known = (/** @type {string} */ name, /** @type {Scale} */ standard) => (scales.some((scale) => scale.name === name) ? name : standard.name);
  const [across, down] = [known(chosenX, scales[0]), known(chosenY, scales[1] ?? scales[0])];
  const choices = scales.map(({ name }) => [name, name]);
  const table = pivotOf(trials, down, across, metric.name);
  const title = `${metric.title} by ${down} and ${across}`;
  const isTooLarge = Math.max(table.rows.length, table.columns.length) > MAX_VALUES;
  return html`
    <section class="card">
      <div class="row">
        <${Select} label="Down" values=${choices} value=${down} onChange=${setDown} />
        <${Select} label="Across" values=${choices} value=${across} onChange=${setAcross} />
        <span class="spread"></span>
        <button class="small" onClick=${() => saveFile(`${title}.csv`, pivotCsv(table, down, across), "text/csv")}>Save as CSV</button>
        <button class="small" onClick=${() => saveFile(`${title}.tex`, pivotLatex(table, down, across), "text/plain")}>Save as LaTeX</button>
      </div>
      ${
        isTooLarge
          ? html`<${Empty} title="These have too many values for a table.">The heat map puts them in cells; both files have all of them.<//>`
          : html`
            <div class="scroll-x" tabindex="0" role="region" aria-label=${title}>
              <table class="plain-table">
                <thead><tr><th>${down} \\ ${across}</th>${table.columns.map((column) => html`<th class="number">${column}</th>`)}</tr></thead>
                <tbody>
                  ${table.rows.map((row, index) => html`<tr><th scope="row">${row}</th>${table.cells[index].map((cell) => html`<td class="number">${cell ? html`${cellText(cell)} <span class="soft">n = ${cell.count}</span>` : html`<span class="soft">–</span>`}</td>`)}</tr>`)}
                </tbody>
              </table>
            </div>
            <p class="soft">Mean ± standard deviation of the ${metric.title}.</p>
          `
      }
    </section>
  `;
}

/** @param {Pick<Drawn, "values">[]} trials @param {string} down @param {string} across @param {string} metric @returns {PivotTable} */
export function pivotOf(trials, down, across, metric) {
  const textOf = (/** @type {Pick<Drawn, "values">} */ { values }, /** @type {string} */ name) => formatValue(values[name]) || "none";
  const valuesOf = (/** @type {string} */ name) => {
    const values = new Map(trials.map((trial) => [textOf(trial, name), trial.values[name]]));
    return [...values.keys()].sort((one, other) => compared(values.get(one), values.get(other)));
  };
  const [rows, columns] = [down, across].map(valuesOf);
  const cells = rows.map((row) =>
    columns.map((column) =>
      aggregateOf(trials.filter((trial) => textOf(trial, down) === row && textOf(trial, across) === column).map(({ values }) => values[metric])),
    ),
  );
  return { rows, columns, cells };
}

/** @param {unknown} one @param {unknown} other */
const compared = (one, other) => (typeof one === "number" && typeof other === "number" ? one - other : collator.compare(String(one), String(other)));

const cellText = (/** @type {Aggregate} */ { mean, std }) => `${formatNumber(mean)}${std === null ? "" : ` ± ${formatNumber(std, 2)}`}`;

/** A line for each pair that some trial has. @param {PivotTable} table @param {string} down @param {string} across */
export const pivotCsv = ({ rows, columns, cells }, down, across) =>
  csvText([
    [down, across, "mean", "std", "num_trials"],
    ...rows.flatMap((row, index) => columns.flatMap((column, at) => lineOf([row, column], cells[index][at]))),
  ]);

const lineOf = (/** @type {string[]} */ names, /** @type {Aggregate | null} */ cell) => (cell ? [[...names, cell.mean, cell.std, cell.count]] : []);

/** The table for a paper; it needs the package booktabs. @param {PivotTable} table @param {string} down @param {string} across */
export function pivotLatex({ rows, columns, cells }, down, across) {
  const cellOf = (/** @type {Aggregate | null} */ cell) =>
    cell
      ? `$${cellText(cell)
          .replace("±", "\\pm")
          .replace(/e(-?\d+)/g, "\\cdot 10^{$1}")}$`
      : "--";
  return [
    `\\begin{tabular}{l${"r".repeat(columns.length)}}`,
    "\\toprule",
    `${[`${inLatex(down)} $\\backslash$ ${inLatex(across)}`, ...columns.map(inLatex)].join(" & ")} \\\\`,
    "\\midrule",
    ...rows.map((row, index) => `${[inLatex(row), ...cells[index].map(cellOf)].join(" & ")} \\\\`),
    "\\bottomrule",
    "\\end{tabular}",
    "",
  ].join("\n");
}

const SPECIAL = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}" };
const inLatex = (/** @type {string} */ text) =>
  text.replace(/[\\~^&%$#_{}]/g, (found) => SPECIAL[/** @type {keyof typeof SPECIAL} */ (found)] ?? `\\${found}`);
