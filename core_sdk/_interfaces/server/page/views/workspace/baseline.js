/** The baseline: a trial whose curve every chart shows with the others. The URL holds it, and this tab keeps it. */

import { html, useMemo } from "../../preact.js";
import { finerIn } from "../../charts/settings.js";
import { NumberField } from "../../parts/number-field.js";
import { address } from "../../state/api.js";
import { useAnswer } from "../../state/answers.js";
import { useSetting } from "../../state/place.js";
import { curvesOf } from "./trial-curves.js";
/** @import { Frame } from "./panel-grid.js" */
/** @import { Subject } from "./subjects.js" */

const NUM_BUCKETS = 400;

export const useBaseline = () => useSetting("baseline");

/** Chooses the baseline by its ID. */
export function BaselineChoice() {
  const [baseline, setBaseline] = useBaseline();
  return html`
    <label class="select" title="A trial whose curve every chart has beside the others">
      <span>Baseline</span>
      <${NumberField} label="Baseline" value=${Number(baseline) || null} min=${1} none="trial" onCommit=${(/** @type {number | null} */ id) => setBaseline(String(id ?? ""))} />
    </label>
  `;
}

/**
 * The curves of the baseline in a chart, unless it is among its trials, and why there are none.
 * @param {Subject[]} subjects
 * @param {string[]} metrics
 * @param {Frame} frame
 */
export function useBaselineCurves(subjects, metrics, { axis, zoom, formula }) {
  const [baseline] = useBaseline();
  const id = Number(baseline);
  const isAsked = Number.isInteger(id) && id > 0 && !subjects.some(({ ids }) => ids.includes(id));
  const options = { follows: (/** @type {import("../../state/events.js").Change} */ { trials }) => trials.includes(id) };
  const question = { trials: [id], names: metrics, formula, x: axis, buckets: NUM_BUCKETS };
  const about = JSON.stringify(question);
  const answer = useAnswer(isAsked ? address(["comparison", "metrics"], { ...question, ...finerIn(zoom) }) : null, { ...options, about });
  // Over time it begins where the trial did.
  const trial = useAnswer(isAsked && axis === "time" ? address(["trials", id]) : null, options);
  const curves = useMemo(() => {
    const [found] = answer.value?.trials ?? [];
    const started = trial.value?.trial.created;
    if (!isAsked || !found || (axis === "time" && started === undefined)) return [];
    const subject = { key: "baseline", name: "", label: `baseline ${id}`, ids: [id], values: { started: started ?? 0, steps: 0 } };
    return curvesOf(subject, found, { look: { colour: "--text", dash: [] }, names: formula ? [formula] : metrics, axis, hasAllRanks: false });
  }, [answer.value, trial.value, about, isAsked]);
  return { curves, problem: answer.error?.message ?? "" };
}
