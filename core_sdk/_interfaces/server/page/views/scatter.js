/** Chosen trials as points: a metric against a hyperparameter, or against another metric. */

import { html, useMemo } from "../preact.js";
import { useWidth } from "../charts/chart.js";
import { scaleOf } from "../charts/search/scale.js";
import { Scatter } from "../charts/search/scatter.js";
import { Select } from "../parts/choice.js";
import { Answered, Empty, Remark } from "../parts/states.js";
import { counted, firstOf } from "../parts/text.js";
import { address } from "../state/api.js";
import { useAnswer } from "../state/answers.js";
import { useSetting } from "../state/place.js";
import { metricWords } from "./groups/words.js";
import { runsOf } from "./runs/trials.js";
/** @import { ColumnAnswer, ColumnsAnswer, RunsAnswer } from "api" */
/** @import { Change } from "../state/events.js" */

const MOST_TRIALS = 1000;
const MOST_NAMES = 1000;
const [MOST_WIDTH, RATIO] = [900, 0.55];

/** @param {{trials: number[], follows: (change: Change) => boolean}} props */
export function ScatterOfTrials({ trials, follows }) {
  const answer = useAnswer(address(["columns"], { trials, limit: MOST_NAMES }), { follows });
  return html`<${Answered} answer=${answer} what="names">${(/** @type {ColumnsAnswer} */ known) => html`<${Chosen} trials=${trials} follows=${follows} known=${known} />`}<//>`;
}

/** @param {{trials: number[], follows: (change: Change) => boolean, known: ColumnsAnswer}} props */
function Chosen({ trials, follows, known: { columns, num_found: numFound, best_by: bestBy } }) {
  const of = (/** @type {ColumnAnswer["kind"]} */ kind) => columns.filter((column) => column.kind === kind);
  const metrics = of("metric").flatMap(({ name }) => ["", "min.", "max."].map((which) => which + name));
  const hparams = of("hyperparameter").map(({ name }) => name);
  const [x, setX] = useSetting("across", hparams[0] ?? metrics[0] ?? "");
  const [y, setY] = useSetting("up", bestBy ?? metrics[0] ?? "");
  const isKnown = metrics.includes(y) && (metrics.includes(x) || hparams.includes(x));
  const answer = useAnswer(isKnown ? address(["runs"], { trials, columns: [...new Set([x, y])], limit: MOST_TRIALS, archived: true }) : null, {
    follows,
  });
  const choices = metrics.map((name) => [name, metricWords(name)]);
  if (metrics.length === 0) return html`<${Empty} title="No trial has reported a metric." />`;
  return html`
    <div class="toolbar">
      <${Select} label="Across" values=${[...hparams.map((name) => [name, name]), ...choices]} value=${x} onChange=${setX} />
      <${Select} label="Up" values=${choices} value=${y} onChange=${setY} />
    </div>
    <div class="pane">
      ${numFound > MOST_NAMES && html`<${Remark}>There is a choice of the first ${firstOf(MOST_NAMES, numFound)} names.<//>`}
      ${
        isKnown
          ? html`<${Answered} answer=${answer} what="values">${(/** @type {RunsAnswer} */ value) => html`<${Drawing} value=${value} x=${x} y=${y} title=${metrics.includes(x) ? metricWords(x) : x} />`}<//>`
          : html`<${Empty} title=${`No trial has ${metrics.includes(y) ? x : y}.`} />`
      }
    </div>
  `;
}

/** @param {{value: RunsAnswer, x: string, y: string, title: string}} props */
function Drawing({ value, x, y, title }) {
  const [box, room] = useWidth();
  const { drawn, numLeftOut, across, up } = useMemo(() => {
    const trials = runsOf(value).map(({ key, values }) => ({ id: Number(key), values }));
    const scale = (/** @type {string} */ name) =>
      scaleOf(
        name,
        trials.map(({ values }) => values[name]),
      );
    const [ofX, ofY] = [x, y].map(scale);
    const placed = trials.filter(({ values }) => !Number.isNaN(ofX.place(values[x])) && !Number.isNaN(ofY.place(values[y])));
    return { drawn: placed, numLeftOut: trials.length - placed.length, across: { ...ofX, title }, up: { ...ofY, title: metricWords(y) } };
  }, [value, x, y, title]);
  const width = Math.min(MOST_WIDTH, room - 24);
  return html`
    <div ref=${box}>
      ${numLeftOut > 0 && html`<${Remark}>Left out: ${counted(numLeftOut, "trial")} without both values.<//>`}
      ${drawn.length === 0 ? html`<${Empty} title="No trial has both values." />` : room > 0 && html`<${Scatter} x=${across} y=${up} metric=${up} trials=${drawn} width=${width} height=${RATIO * width} />`}
    </div>
  `;
}
