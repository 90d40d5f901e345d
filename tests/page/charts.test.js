/** What charts draw: smoothing, buckets, ranges and scales. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { bandAt } from "../../core_sdk/_interfaces/server/page/charts/chart.js";
import {
  areasOf,
  nearest,
  rangeOfX,
  rangeOfY,
  snapped,
  stretchesOf,
  traceOf,
  whyNothing,
  within,
} from "../../core_sdk/_interfaces/server/page/charts/curves.js";
import { csvOf } from "../../core_sdk/_interfaces/server/page/charts/export.js";
import { dashOf, seriesColour } from "../../core_sdk/_interfaces/server/page/charts/palette.js";
import { cellsOf } from "../../core_sdk/_interfaces/server/page/charts/search/heat-map.js";
import { isWithin } from "../../core_sdk/_interfaces/server/page/charts/search/parallel.js";
import { rampColour, readableOn, scaleOf } from "../../core_sdk/_interfaces/server/page/charts/search/scale.js";
import { roundTicks } from "../../core_sdk/_interfaces/server/page/charts/ticks.js";
import { smoothed } from "../../core_sdk/_interfaces/server/page/charts/smoothing.js";

/** @import { Series } from "../../core_sdk/_interfaces/server/page/charts/curves.js" */

const same = (/** @type {number} */ value) => value;
const LINEAR = { isLogarithmic: false, ignoresOutliers: false };

/** @param {Series["mean"]} values @param {Partial<Series>} [other] */
const traceWith = (values, other) =>
  traceOf(
    { label: "loss", colour: "--series-1", series: { x: values.map((_, index) => index), minimum: values, maximum: values, mean: values, ...other } },
    0,
  );

test("smoothing leaves a constant as it is, and passes over what is no number", () => {
  assert.deepEqual(smoothed([1, 1, 1], 0.9), [1, 1, 1]);
  assert.deepEqual(smoothed([0, null, 2], 0.5), [0, null, 4 / 3]);
  assert.deepEqual(smoothed([0, NaN, 2], 0.5), [0, NaN, 4 / 3]);
  assert.deepEqual(smoothed([3, 1], 0), [3, 1]);
});

test("a bucket of many points weighs as much as its points", () => {
  assert.deepEqual(smoothed([0, 4], 0.5, [1, 1000]), [0, 4]);
  assert.equal(smoothed([0, 3, 3, 3], 0.5).at(-1), smoothed([0, 3], 0.5, [1, 3]).at(-1));
});

test("a trace has the values that have a place, as numbers", () => {
  const trace = traceWith([1, null, "Infinity", "NaN"], { x: [10, 20, null, 40], mean: [1, null, 5, null] });

  assert.deepEqual([...trace.places], [10, 20, 40]);
  assert.deepEqual([...trace.lows], [1, NaN, NaN]);
  assert.deepEqual([...trace.means], [1, NaN, NaN]);
});

test("the origin of a curve is where its places begin", () => {
  const series = { x: [100, 101], minimum: [1, 2], maximum: [1, 2], mean: [1, 2] };

  assert.deepEqual([...traceOf({ label: "", colour: "", series, origin: 100 }, 0).places], [0, 1]);
});

test("the nearest bucket is found from either side, and there is none without buckets", () => {
  const trace = traceWith([1, 2, 3]);

  assert.deepEqual(
    [-5, 0.4, 0.6, 99].map((x) => nearest(trace, x)),
    [0, 0, 1, 2],
  );
  assert.equal(nearest(traceWith([]), 1), -1);
});

test("a range spans all traces, and a lone point has one, too", () => {
  assert.equal(rangeOfX([]), null);
  assert.deepEqual(rangeOfX([traceWith([1])]), [-0.5, 0.5]);
  assert.deepEqual(rangeOfX([traceWith([1]), traceWith([1, 2, 3])]), [0, 2]);
});

test("the range of values leaves out what cannot be drawn", () => {
  const traces = [traceWith([1, "Infinity", -1, 3])];

  assert.deepEqual(rangeOfY(traces, [0, 3], LINEAR), [-1.2, 3.2]);
  assert.deepEqual(rangeOfY(traces, [0, 1], { ...LINEAR, isLogarithmic: true }), [0.5, 2]);
  assert.equal(rangeOfY(traces, [1, 1], LINEAR), null);
});

test("outliers do not widen the range, if they are ignored", () => {
  const traces = [traceWith([...Array.from({ length: 99 }, () => 1), 1000])];

  assert.deepEqual(rangeOfY(traces, [0, 99], { ...LINEAR, ignoresOutliers: true }), [0.9, 1.1]);
});

test("a zoom stays within the whole, and is none where it is the whole", () => {
  assert.deepEqual(within([-5, 5], [0, 100]), [0, 10]);
  assert.deepEqual(within([95, 115], [0, 100]), [80, 100]);
  assert.equal(within([-5, 500], [0, 100]), null);
});

test("a chart is saved with the buckets of all of its curves", () => {
  assert.equal(
    csvOf([traceWith([1, "NaN"])], "steps"),
    "curve,is_superseded,steps,minimum,maximum,mean\r\nloss,false,0,1,1,1\r\nloss,false,1,NaN,NaN,NaN\r\n",
  );
});

test("the curve of a group has a band of no width where it has none, and is saved with its numbers of trials", () => {
  const series = { x: [1, 2], minimum: [0, null], maximum: [4, null], mean: [2, 3], numTrials: [2, 1] };
  const trace = traceOf({ label: "lr 0.1", colour: "--series-1", series, isBand: true }, 0);

  assert.deepEqual(
    [[...trace.lows], [...trace.highs]],
    [
      [0, 3],
      [4, 3],
    ],
  );
  assert.equal(trace.hasArea, true);
  assert.deepEqual([bandAt(trace, 0, String), bandAt(trace, 1, String)], ["0 … 4, n = 2", "n = 1"]);
  assert.equal(csvOf([trace], "steps"), "group,num_trials,steps,low,high,centre\r\nlr 0.1,2,1,0,4,2\r\nlr 0.1,1,2,3,3,3\r\n");
});

test("no two of forty groups look the same", () => {
  const looks = Array.from({ length: 40 }, (_, index) => seriesColour(index) + dashOf(index).join(" "));

  assert.equal(new Set(looks).size, 40);
});

test("a scale is logarithmic where its values span a factor of fifty", () => {
  assert.deepEqual([1, 10, 100].map(scaleOf("lr", [1, 100]).place), [0, 0.5, 1]);
  assert.deepEqual([0, 20, 40].map(scaleOf("size", [0, 40]).place), [0, 0.5, 1]);
});

test("a scale is as the configuration says it", () => {
  const choice = { low: null, high: null, is_logarithmic: false, values: null };
  const lr = scaleOf("lr", [0.01, 0.02], null, { ...choice, low: 1e-4, high: 1, is_logarithmic: true });
  const size = scaleOf("size", [8, 64], null, { ...choice, values: [64, 8, 16] });

  assert.deepEqual([1e-4, 1e-2, 1].map(lr.place), [0, 0.5, 1]);
  assert.deepEqual(
    lr.ticks.map(({ text }) => text),
    ["1e-4", "0.001", "0.01", "0.1", "1"],
  );
  assert.deepEqual([64, 8, 16].map(size.place), [0, 0.5, 1]);
});

test("values that are no numbers have places in their order, and others none", () => {
  const { place, isNumeric } = scaleOf("kind", ["a", "b", "c", null]);

  assert.equal(isNumeric, false);
  assert.deepEqual(["b", "a", "c", "x", null].map(place), [0.5, 0, 1, NaN, NaN]);
});

test("a number that is not finite does not make a scale one of words", () => {
  const { place, isNumeric } = scaleOf("loss", [1, 2, "NaN", "Infinity"]);

  assert.equal(isNumeric, true);
  assert.deepEqual([1, 2, "NaN"].map(place), [0, 1, NaN]);
});

test("the colours of a ramp are mixed between its ends", () => {
  assert.deepEqual(
    [0, 0.5, 1, 7, NaN].map((place) => rampColour(place, ["#000000", "#0a1420"])),
    ["rgb(0 0 0)", "rgb(5 10 16)", "rgb(10 20 32)", "rgb(10 20 32)", "transparent"],
  );
  assert.deepEqual(["rgb(20 20 60)", "rgb(250 250 200)"].map(readableOn), ["#ffffff", "#10141b"]);
});

test("a cell of the heat map has the mean of its trials", () => {
  const trials = [
    { x: 0, y: "a", loss: 1 },
    { x: 0, y: "a", loss: 3 },
    { x: 8, y: "b", loss: 5 },
    { x: 8, y: "b", loss: "NaN" },
  ].map((values) => ({ values }));
  const [x, y, loss] = [scaleOf("x", [0, 8]), scaleOf("y", ["a", "b"]), scaleOf("loss", [1, 3, 5])];

  assert.deepEqual(cellsOf(x, y, loss, trials), [
    { column: 0, row: 0, count: 2, mean: 2 },
    { column: 7, row: 1, count: 1, mean: 5 },
  ]);
});

test("a trial is within the ranges of all axes, whatever their names", () => {
  const scales = [scaleOf("constructor", [0, 1]), scaleOf("lr", [0, 1])];

  assert.equal(isWithin(scales, [0.5, 0.5], {}), true);
  assert.equal(isWithin(scales, [0.5, 0.5], { lr: [0.6, 1] }), false);
  assert.equal(isWithin(scales, [0.5, NaN], { lr: [0, 1] }), false);
});

test("a line is interrupted by what has no place, and a lone point is a stretch of its own", () => {
  const trace = traceWith([1, "NaN", 3, 4]);

  assert.deepEqual(stretchesOf(trace, trace.means, same, same), [
    [0, 1],
    [2, 3, 3, 4],
  ]);
});

test("an area lies between the extremes of its buckets, and is interrupted as its line is", () => {
  const trace = traceWith([1, "NaN", 3, 4], { maximum: [1, "NaN", 5, 6] });

  assert.deepEqual(areasOf(trace, same, same, 99), [
    [0, 1, 0, 1],
    [2, 5, 3, 6, 3, 4, 2, 3],
  ]);
});

test("an area whose lower end has no logarithm goes down to the end of the axis", () => {
  const trace = traceWith([-1, -2], { maximum: [1, -1] });

  assert.deepEqual(
    areasOf(trace, same, (y) => (y <= 0 ? NaN : y), 99),
    [[0, 1, 0, 99]],
  );
});

test("a place belongs to the nearest point of any curve that counts", () => {
  const [often, seldom] = [traceWith([1, 1], { x: [0, 100] }), traceWith([1, 1], { x: [0, 40] })];

  assert.deepEqual(
    [10, 30, 60, 90].map((x) => snapped([often, seldom], x)),
    [0, 40, 40, 100],
  );
  assert.equal(snapped([{ ...often, isFaint: true }], 10), null);
});

test("a curve of the best so far goes only one way, over what is no number", () => {
  /** @type {Series} */
  const series = { x: [1, 2, 3, 4], minimum: [3, 1, "NaN", 2], maximum: [5, 4, "NaN", 9], mean: [4, 2, null, 5] };
  const curve = { label: "loss", colour: "--series-1", series };

  assert.deepEqual([...traceOf(curve, 0, "min").means], [3, 1, 1, 1]);
  assert.deepEqual([...traceOf(curve, 0, "max").means], [5, 5, 5, 9]);
});

test("a chart in which nothing is drawn says why", () => {
  const options = { isLogX: false, isLogarithmic: false, ignoresOutliers: false };
  /** @param {Series["mean"]} values @param {object} [other] @param {[number | null, number | null]} [limits] @param {[number, number]} [range] */
  const reason = (values, other = {}, limits = [null, null], range = [0, 9]) =>
    whyNothing([traceWith(values)], range, limits, { ...options, ...other });

  assert.equal(reason([1, 2]), "");
  assert.equal(reason([]), "");
  assert.match(reason([0, -2], { isLogarithmic: true }), /none is above 0/);
  assert.match(reason(["NaN", null, "Infinity"]), /NaN or infinite/);
  assert.match(reason([1e308, -1e308]), /too large/);
  assert.match(reason([1], { isLogX: true }), /begins above 0/);
  assert.match(reason([1, 2], {}, [null, null], [5, 9]), /in this stretch/);
  assert.match(reason([1, 2], {}, [5, 6]), /outside the ends/);
});

test("ticks are round numbers", () => {
  assert.deepEqual(roundTicks(0.13, 0.97, false), [0.2, 0.4, 0.6, 0.8]);
  assert.deepEqual(roundTicks(-3, 3, false), [-3, -2, -1, 0, 1, 2, 3]);
  assert.deepEqual(roundTicks(0, 64, false), [0, 20, 40, 60]);
  assert.deepEqual(roundTicks(1e-4, 1e-1, true), [1e-4, 1e-3, 1e-2, 1e-1]);
  assert.deepEqual(roundTicks(0.3, 6, true), [0.5, 1, 2, 5]);
  assert.deepEqual(roundTicks(1e-30, 1, true), [1e-30, 1e-25, 1e-20, 1e-15, 1e-10, 1e-5, 1]);
  assert.deepEqual([roundTicks(5, 5, false), roundTicks(3.1, 3.2, true)], [[5], [3.1, 3.2]]);
});
