/** The figures of the machines that a trial ran on. */

import { html, useMemo } from "../../preact.js";
import { Chart } from "../../charts/chart.js";
import { seriesColour } from "../../charts/palette.js";
import { ChartSettingsBar, useChartSettings } from "../../charts/settings.js";
import { Answered, Empty } from "../../parts/states.js";
import { formatNumber, formatSize } from "../../parts/text.js";
import { address } from "../../state/api.js";
import { useAnswer } from "../../state/answers.js";

const NUM_BUCKETS = 800;

/** @param {{trial: any}} props */
export function System({ trial }) {
  const answer = useAnswer(address(["trials", trial.trial_id, "system"], { buckets: NUM_BUCKETS }), {
    follows: ({ trials }) => trials.includes(trial.trial_id),
  });
  return html`
    <${ChartSettingsBar} hasAxis=${false} />
    <div class="pane">
      <${Answered} answer=${answer} what="figures of the machine">
        ${(/** @type {any} */ value) =>
          value.curves.length === 0
            ? html`<${Empty} title="No figures of the machine."><p>The script records them after this line.</p><pre><code>ctx.profiler.on()</code></pre><//>`
            : html`<${Charts} curves=${value.curves} trial=${trial} />`}
      <//>
    </div>
  `;
}

function Charts({ curves, trial }) {
  const settings = useChartSettings();
  const charts = useMemo(() => chartsOf(curves, trial.created), [curves, trial.created]);
  return html`
    <div class="charts">
      ${charts.map(({ title, curves: drawn, format }) => html`<${Chart} key=${title} title=${title} curves=${drawn} ...${settings} axis="time" format=${format} />`)}
    </div>
  `;
}

/** A chart for each figure; those of several GPUs, disks or nodes share one. */
function chartsOf(/** @type {any[]} */ curves, /** @type {number} */ origin) {
  /** @type {Map<string, any[]>} */
  const byTitle = new Map();
  for (const curve of curves) {
    const title = `${curve.group} ${curve.name.split(".")[0]}`;
    byTitle.set(title, [...(byTitle.get(title) ?? []), curve]);
  }
  const hasNodes = new Set(curves.map(({ rank }) => rank)).size > 1;
  return [...byTitle].map(([title, members]) => ({
    title,
    format: /memory|rss|throughput|bytes/.test(title) ? formatSize : formatNumber,
    curves: members.map((series, index) => ({
      label: [series.name.split(".").slice(1).join("."), hasNodes && `rank ${series.rank}`].filter(Boolean).join(", ") || series.name,
      colour: seriesColour(index),
      series,
      origin,
    })),
  }));
}
