/** The last values of groups of trials, as bars with errors. */

import { html, useMemo } from "../../preact.js";
import { useWidth } from "../../charts/chart.js";
import { Bars } from "../../charts/search/bars.js";
import { Answered, Empty } from "../../parts/states.js";
import { own } from "../../parts/own.js";
import { address } from "../../state/api.js";
import { useAnswer } from "../../state/answers.js";
import { useGroupSettings } from "../groups/choice.js";
import { runsOf } from "../runs/trials.js";
import { bandOf } from "../groups/bands.js";
/** @import { RunsAnswer } from "api" */
/** @import { Frame } from "./panel-grid.js" */
/** @import { Look, Subject } from "./subjects.js" */

/** @param {{subjects: Subject[], looks: Map<string, Look>, metrics: string[], frame: Frame}} props */
export function FinalsChart({ subjects, looks, metrics, frame: { title } }) {
  const { centre, band } = useGroupSettings();
  const [box, width] = useWidth();
  const trials = subjects.flatMap(({ ids }) => ids);
  const follows = (/** @type {import("../../state/events.js").Change} */ { trials: changed }) => changed.some((id) => trials.includes(id));
  const answer = useAnswer(address(["runs"], { trials, columns: metrics, limit: 1000, archived: true }), { follows });
  const bars = useMemo(() => {
    const runs = new Map((answer.value ? runsOf(answer.value) : []).map(({ key, values }) => [Number(key), values]));
    return metrics.flatMap((metric) =>
      subjects.flatMap(({ key, label, ids }) => {
        const found = bandOf(
          ids.map((id) => own(runs.get(id) ?? {}, metric)),
          centre,
          band,
        );
        return found ? [{ label: metrics.length > 1 ? `${label}, ${metric}` : label, colour: looks.get(key)?.colour ?? "--accent", ...found }] : [];
      }),
    );
  }, [answer.value, subjects, looks, metrics.join("\n"), centre, band]);
  return html`
    <div ref=${box}>
      <${Answered} answer=${answer} what=${`last values of ${title}`}>
        ${(/** @type {RunsAnswer} */ _) => (bars.length === 0 ? html`<${Empty} title=${`No trial has reported ${title}.`} />` : width > 0 && html`<${Bars} title=${`Last ${title}`} bars=${bars} width=${width - 24} />`)}
      <//>
    </div>
  `;
}
