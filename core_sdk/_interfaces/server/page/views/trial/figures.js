/** The profiler's figures: what they are called, in what they are counted, and where nothing was measured. Pure. */

import { formatNumber, formatSize } from "../../parts/text.js";
import { own } from "../../parts/own.js";
import { sourceName } from "../rank-choice.js";
/** @import { Curve, Metric } from "api" */
/** @import { Series } from "../../charts/curves.js" */

const percent = (/** @type {number} */ value) => `${formatNumber(value, 3)} %`;
const rate = (/** @type {number} */ value) => `${formatSize(Math.round(value))}/s`;

/** @type {Record<string, {title: string, format: (value: number) => string}>} */
const FIGURES = {
  gpu_util: { title: "GPU", format: percent },
  gpu_used_memory: { title: "GPU, used memory", format: formatSize },
  gpu_free_memory: { title: "GPU, free memory", format: formatSize },
  gpu_power: { title: "GPU, power", format: (value) => `${formatNumber(value, 3)} W` },
  gpu_temperature: { title: "GPU, temperature", format: (value) => `${formatNumber(value, 3)} °C` },
  gpu_throttled: { title: "GPU, slowed down by heat or hardware", format: percent },
  gpu_ecc_errors: { title: "GPU, memory errors", format: formatNumber },
  data_wait: { title: "Wait for data", format: percent },
  process_cpu_util: { title: "Process, CPU", format: percent },
  compute: { title: "Main thread, computing", format: percent },
  workers_cpu_util: { title: "Workers, CPU", format: percent },
  process_rss: { title: "Process, memory", format: formatSize },
  process_read: { title: "Process, read", format: rate },
  process_written: { title: "Process, written", format: rate },
  cpu_util_simple: { title: "CPU", format: percent },
  memory_free: { title: "Memory, free", format: formatSize },
  disk_util: { title: "Disk, space in use", format: percent },
  disk_iops: { title: "Disk, accesses per second", format: (value) => formatNumber(value, 3) },
  disk_throughput_read: { title: "Disk, read", format: rate },
  disk_throughput_write: { title: "Disk, written", format: rate },
  net_throughput_sent: { title: "Network, sent", format: rate },
  net_throughput_recv: { title: "Network, received", format: rate },
};
const ORDER = Object.values(FIGURES).map(({ title }) => title);

// Measurements are a second or so apart; a pause of the training takes minutes.
const LEAST_GAP_S = 20;
const GAP_IN_INTERVALS = 6;

/** @typedef {Metric | null} Value */
/** @typedef {{title: string, format: (value: number) => string, curves: {label: string, series: Series}[]}} MachineChart */

/**
 * The curves by what they measure: a chart for each figure, in which GPUs, disks and nodes lie over each other.
 * @param {Curve[]} curves As the server sends them.
 * @returns {MachineChart[]}
 */
export function figuresOf(curves) {
  const hasNodes = new Set(curves.map(({ rank }) => rank)).size > 1;
  /** @type {Map<string, MachineChart>} */
  const charts = new Map();
  for (const curve of curves) {
    const [name, ...rest] = curve.name.split(".");
    const figure = own(FIGURES, name) ?? { title: `${curve.group} ${name}`, format: formatNumber };
    /** @type {MachineChart} */
    const chart = charts.get(figure.title) ?? { ...figure, curves: [] };
    const label = [rest.join("."), hasNodes && sourceName(curve.rank)].filter(Boolean).join(", ") || figure.title;
    chart.curves.push({ label, series: withGaps(curve) });
    charts.set(figure.title, chart);
  }
  return ORDER.flatMap((title) => charts.get(title) ?? []).concat([...charts.values()].filter(({ title }) => !ORDER.includes(title)));
}

/**
 * The series, interrupted where nothing was measured for long, for example between two attempts.
 * @param {Pick<Curve, "x" | "count" | "minimum" | "maximum" | "mean">} curve Its x are times, of which each bucket has one.
 * @returns {Required<Omit<Series, "numTrials" | "last">>}
 */
export function withGaps({ x, count, minimum, maximum, mean }) {
  const times = /** @type {number[]} */ (x);
  const intervals = times.slice(1).map((at, index) => at - times[index]);
  const usual = [...intervals].sort((one, other) => one - other)[Math.floor(intervals.length / 2)] ?? 0;
  const longest = Math.max(LEAST_GAP_S, GAP_IN_INTERVALS * usual);
  /** @type {Required<Omit<Series, "numTrials" | "last">>} */
  const series = { x: [], count: [], minimum: [], maximum: [], mean: [] };
  const add = (
    /** @type {number} */ at,
    /** @type {number} */ num,
    /** @type {Value} */ low,
    /** @type {Value} */ high,
    /** @type {Value} */ middle,
  ) => {
    series.x.push(at);
    series.count.push(num);
    series.minimum.push(low);
    series.maximum.push(high);
    series.mean.push(middle);
  };
  times.forEach((at, index) => {
    if (index > 0 && intervals[index - 1] > longest) add((times[index - 1] + at) / 2, 0, null, null, null);
    add(at, count[index], minimum[index], maximum[index], mean[index]);
  });
  return series;
}
