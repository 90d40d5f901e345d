/** What the views of media make of the server's answers: steps, the item at a step, rows and densities. */

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  filtered,
  indexAt,
  kindsOf,
  placeOf,
  sectionsOf,
  stepsOf,
  thinned,
  worthPrefetching,
} from "../../core_sdk/_interfaces/server/page/views/media/choosing.js";
import { densitiesOf } from "../../core_sdk/_interfaces/server/page/views/media/histogram.js";
import { ratesOf } from "../../core_sdk/_interfaces/server/page/views/media/rates.js";
import { rowsOf } from "../../core_sdk/_interfaces/server/page/views/media/table.js";

/** @import { MediaItem, MediaSeries } from "api" */

/** @param {number} steps @param {Partial<MediaItem>} [other] @returns {MediaItem} */
const item = (steps, other) => ({
  steps_completed: steps,
  attempt: 1,
  rank: 0,
  is_superseded: false,
  file_name: `${steps}.png`,
  kind: "image",
  media_type: "image/png",
  size_bytes: 1,
  caption: "",
  width: null,
  height: null,
  duration_s: null,
  problem: "",
  ...other,
});

/** @param {string} group @param {string} name @param {MediaItem[]} items @returns {MediaSeries} */
const series = (group, name, items) => ({ group, name, items, num_left_out: 0 });

test("the newest item at a step is shown, and one that counts before one that was superseded", () => {
  const items = [item(1), item(3, { is_superseded: true }), item(3, { attempt: 2 }), item(5, { attempt: 2 }), item(5, { is_superseded: true })];

  assert.deepEqual(
    [0, 1, 2, 3, 4, 5, 9].map((step) => indexAt(items, step)),
    [-1, 0, 0, 2, 2, 3, 3],
  );
  assert.equal(indexAt([item(1), item(2, { is_superseded: true })], 2), 1);
});

test("the slider has each step of all series once, and stands at the last one before another step", () => {
  const steps = stepsOf([series("a", "x", [item(10), item(2)]), series("b", "y", [item(2), item(7)])]);

  assert.deepEqual(steps, [2, 7, 10]);
  assert.deepEqual(
    [null, 1, 8, 10, 99].map((step) => placeOf(steps, step)),
    [2, 0, 1, 2, 2],
  );
});

test("series are chosen by kind and name", () => {
  const all = [series("a", "x", [item(1)]), series("b", "Y", [item(1, { kind: "text" })]), series("a", "z", [item(1)])];

  assert.deepEqual(kindsOf(all), ["image", "text"]);
  assert.deepEqual(
    filtered(all, "", "b.y").map(({ name }) => name),
    ["Y"],
  );
});

test("of one trial a gallery has groups, of several names, and lists stand apart in their order", () => {
  const names = ["weights", "samples[10]", "samples[2]"].map((name) => series("val", name, [item(1)]));
  const ofTwo = [
    { trialId: 3, series: names },
    { trialId: 4, series: [series("val", "samples[2]", [item(1)]), series("val", "answers[0]", [item(1, { kind: "text" })])] },
  ];
  const told = (/** @type {typeof ofTwo} */ chosen) =>
    sectionsOf(chosen).map(({ title, isOfPictures, cards }) => [title, isOfPictures, cards.map((card) => card.title)]);

  assert.deepEqual(told([ofTwo[0]]), [
    ["val", false, ["weights"]],
    ["val.samples", true, ["[2]", "[10]"]],
  ]);
  assert.deepEqual(told(ofTwo), [
    ["val.weights", false, ["Trial 3"]],
    ["val.samples", true, ["Trial 3 [2]", "Trial 4 [2]", "Trial 3 [10]"]],
    ["val.answers", false, ["Trial 4 [0]"]],
  ]);
});

test("what is near is asked for first, and what is large is not asked for in advance", () => {
  const all = [series("a", "x", [item(1), item(5), item(9, { kind: "video" }), item(6, { kind: "figure", media_type: "text/html" })])];

  assert.deepEqual(
    worthPrefetching(all, 6).map(({ steps_completed: steps }) => steps),
    [5, 1],
  );
  assert.deepEqual(thinned([0, 1, 2, 3, 4, 5], 3), [0, 2, 5]);
});

test("rows sort numbers by value, before texts, and what is missing last", () => {
  /** @type {import("../../core_sdk/_interfaces/server/page/views/media/table.js").Cell[][]} */
  const rows = [[10], ["b"], [null], [9], [{ $float: "NaN" }], [{ $float: "Infinity" }]];

  assert.deepEqual(rowsOf(rows, "", 0, false), [[9], [10], [{ $float: "Infinity" }], ["b"], [null], [{ $float: "NaN" }]]);
  assert.deepEqual(rowsOf(rows, "", 0, true), [["b"], [{ $float: "Infinity" }], [10], [9], [null], [{ $float: "NaN" }]]);
  assert.deepEqual(rowsOf(rows, "B", null, false), [["b"]]);
});

test("densities of histograms with different edges share one scale", () => {
  const wide = { counts: [4, 4], edges: [0, 1, 2] };
  const narrow = { counts: [8], edges: [0, 1] };

  assert.deepEqual(densitiesOf([wide, narrow], 2), [
    [0.5, 0.5],
    [1, 0],
  ]);
});

test("a table of rates is a curve for each class", () => {
  const rows = [
    ["a", 1, 0.5],
    ["b", 0.75, 1],
    ["a", 0.5, 1],
    ["a", { $float: "NaN" }, 1],
  ];

  const found = ratesOf(["class", "precision", "recall"], rows);

  assert.deepEqual([found?.x, found?.y], ["recall", "precision"]);
  assert.deepEqual(found?.curves, [
    {
      name: "a",
      points: [
        [0.5, 1],
        [1, 0.5],
      ],
    },
    { name: "b", points: [[1, 0.75]] },
  ]);
  assert.deepEqual(ratesOf(["fpr", "tpr"], [[0, 0.5]])?.curves, [{ name: "", points: [[0, 0.5]] }]);
  assert.equal(ratesOf(["class", "precision"], rows), null);
  assert.equal(ratesOf(["recall", "precision"], [["x", "y"]]), null);
});
