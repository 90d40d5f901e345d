/** What views make of the server's answers: columns, orders, groups and curves. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { flattened } from "../../core_sdk/_interfaces/server/page/views/facts.js";
import { allColumns, standardColumns } from "../../core_sdk/_interfaces/server/page/views/runs/columns.js";
import { labelsOf, noteOf } from "../../core_sdk/_interfaces/server/page/views/groups/words.js";
import { restartMarks } from "../../core_sdk/_interfaces/server/page/views/marks.js";
import { bandOf } from "../../core_sdk/_interfaces/server/page/views/groups/bands.js";
import { pivotCsv, pivotLatex, pivotOf } from "../../core_sdk/_interfaces/server/page/views/experiment/pivot.js";
import { grouped } from "../../core_sdk/_interfaces/server/page/views/runs/grouping.js";
import { inOrder } from "../../core_sdk/_interfaces/server/page/views/runs/order.js";
import { runsOf } from "../../core_sdk/_interfaces/server/page/views/runs/trials.js";
import { segmentsOf } from "../../core_sdk/_interfaces/server/page/views/time.js";
import { factOf } from "../../core_sdk/_interfaces/server/page/views/trial/requests.js";
import { figuresOf, withGaps } from "../../core_sdk/_interfaces/server/page/views/trial/figures.js";

/** @import { ColumnAnswer, Curve } from "api" */

/** @param {ColumnAnswer["kind"]} kind @param {string} name @returns {ColumnAnswer} */
const column = (kind, name, num_trials = 1) => ({ kind, name, type: "number", num_trials, is_constant: false, varies: false, title: "" });

/** @param {string} name @param {number[]} x @param {Partial<Curve>} [other] @returns {Curve} */
const curve = (name, x, other) => ({
  group: "gpu",
  name,
  first_steps: x,
  last_steps: x,
  x,
  count: x.map(() => 1),
  minimum: x,
  maximum: x,
  mean: x,
  attempt: null,
  rank: 0,
  last: null,
  ...other,
});

/** @param {Record<string, unknown>[]} values */
const runs = (values) => {
  const columns = Object.keys(values[0]);
  const rows = values.map((one) => /** @type {string[]} */ (columns.map((name) => one[name])));
  return runsOf({ columns, rows, ids: values.map((_, index) => index + 1), num_found: 0, num_trials: 0, next: null });
};

test("rows without a value come last, in either order, and numbers in words count", () => {
  const valuesIn = (/** @type {string} */ sort, /** @type {unknown[]} */ values) =>
    inOrder(
      values.map((x) => ({ values: { x } })),
      sort,
    ).map((row) => row.values.x);

  assert.deepEqual(valuesIn("-x", [3, null, 1]), [3, 1, null]);
  assert.deepEqual(valuesIn("x", [3, "", 1]), [1, 3, ""]);
  assert.deepEqual(valuesIn("x", ["run 10", "run 9"]), ["run 9", "run 10"]);
  assert.deepEqual(valuesIn("constructor", [2, 1]), [2, 1]);
});

test("the runs of an answer have their cells by the names of its columns, also __proto__", () => {
  const [run] = runs([
    Object.fromEntries([
      ["id", 7],
      ["__proto__", "odd"],
    ]),
  ]);

  assert.equal(run.key, "1");
  assert.deepEqual(Object.entries(run.values), [
    ["id", 7],
    ["__proto__", "odd"],
  ]);
});

test("groups stand in the order of their first run, and a folded one hides its runs", () => {
  const all = runs([{ lr: 0.1 }, { lr: null }, { lr: 0.1 }]);

  const found = grouped(all, ["lr"], new Set(["[0.1]"]));

  assert.deepEqual(found, [
    { group: "lr: 0.1", key: "[0.1]", count: 2, isOpen: false, ids: [1, 3], values: all[0].values, aggregates: {}, best: null },
    { group: "lr: none", key: "[null]", count: 1, isOpen: true, ids: [2], values: all[1].values, aggregates: {}, best: null },
    all[1],
  ]);
});

test("the head of a group has what is typical of it, and its best run, the earlier of equal ones", () => {
  const tied = runs([
    { id: 9, loss: 1, "min.loss": 1 },
    { id: 8, loss: 1, "min.loss": 1 },
  ]);
  const [first] = grouped(tied, ["lr"], new Set(), [], "min.loss");
  assert.deepEqual("best" in first && first.best, { id: 8, value: 1 });
  const all = runs([
    { id: 7, lr: 0.1, label: ["a", "b"], loss: 1, "max.accuracy": 0.5 },
    { id: 8, lr: 0.1, label: ["b", "a"], loss: 3, "max.accuracy": "NaN" },
    { id: 9, lr: 0.1, label: ["b", "a"], loss: "NaN", "max.accuracy": 0.7 },
  ]);

  const [head] = grouped(all, ["lr", "label"], new Set(), ["loss", "missing"], "max.accuracy");

  assert.deepEqual(head, {
    group: "lr: 0.1, label: a, b",
    key: '[0.1,"a, b"]',
    count: 3,
    isOpen: true,
    ids: [1, 2, 3],
    values: all[0].values,
    aggregates: { loss: { mean: 2, std: Math.SQRT2, count: 2, numLeftOut: 1 } },
    best: { id: 9, value: 0.7 },
  });
});

test("the band of a group is about its mean or its median, and there is none about one value", () => {
  assert.deepEqual(bandOf([1, 3, "NaN", null], "mean", "std"), { centre: 2, low: 2 - Math.SQRT2, high: 2 + Math.SQRT2, count: 2 });
  assert.deepEqual(bandOf([1, 3], "mean", "sem"), { centre: 2, low: 1, high: 3, count: 2 });
  assert.deepEqual(bandOf([9, 1, 2], "median", "range"), { centre: 2, low: 1, high: 9, count: 3 });
  assert.deepEqual(bandOf([5], "mean", "std"), { centre: 5, low: 5, high: 5, count: 1 });
  assert.equal(bandOf([null, "NaN"], "mean", "std"), null);
});

test("a table over two hyperparameters has its cells in order, as CSV and as LaTeX", () => {
  const trial = (/** @type {number} */ lr, /** @type {string} */ opt_name, /** @type {number} */ loss) => ({ values: { lr, opt_name, loss } });
  const trials = [trial(0.1, "a_b", 1), trial(0.1, "a_b", 3), trial(0.001, "c", 1e-5)];
  const table = pivotOf(trials, "lr", "opt_name", "loss");

  assert.deepEqual(
    [table.rows, table.columns],
    [
      ["0.001", "0.1"],
      ["a_b", "c"],
    ],
  );
  assert.equal(pivotCsv(table, "lr", "opt_name"), "lr,opt_name,mean,std,num_trials\r\n0.001,c,0.00001,,1\r\n0.1,a_b,2,1.4142135623730951,2\r\n");
  assert.equal(
    pivotLatex(table, "lr", "opt_name"),
    String.raw`\begin{tabular}{lrr}
\toprule
lr $\backslash$ opt\_name & a\_b & c \\
\midrule
0.001 & -- & $1\cdot 10^{-5}$ \\
0.1 & $2 \pm 1.4$ & -- \\
\bottomrule
\end{tabular}
`,
  );
});

test("groups are called by what differs between them", () => {
  const groups = [
    [0.1, "adam"],
    [0.5, "adam"],
    [null, "adam"],
  ].map((values) => ({ values, trials: [1], best: null, best_value: null }));

  assert.deepEqual(labelsOf(["lr", "optimizer.name"], groups), ["lr 0.1", "lr 0.5", "lr none"]);
  assert.deepEqual(labelsOf(["lr", "optimizer.name"], groups.slice(0, 1)), ["lr 0.1, optimizer.name adam"]);
});

test("a chart of groups says how they were joined, and what is not in it", () => {
  const steps = {
    group: 0,
    join: /** @type {const} */ ("common"),
    width: 1,
    bin_width: 1,
    x: [1, 2],
    centre: [1, 1],
    low: [1, 1],
    high: [1, 1],
    num_trials: [2, 2],
    count: [1, 1],
    num_left_out: 0,
    num_unshared: 0,
  };
  const bins = { ...steps, group: 1, join: /** @type {const} */ ("bins"), width: 16, num_trials: [3, 2], num_left_out: 1 };

  /** @param {import("api").GroupCurveAnswer[]} curves @returns {import("api").GroupedChartAnswer} */
  const chart = (...curves) => ({ metric: "loss", curves });

  assert.equal(noteOf(chart(steps), ["a", "b"], "steps"), "Joined at common steps.");
  assert.equal(
    noteOf(chart(steps, bins), ["a", "b"], "steps"),
    "Joined at common steps. Few steps are common, so joined: b in bins of 16 steps. Trials end: b has 2 of 3 trials from step 2 on. 1 value that is not finite left out.",
  );
  assert.equal(
    noteOf(chart({ ...bins, num_left_out: 0, x: [100, 4000] }), ["a", "b"], "time"),
    "Few times are common, so joined: b in bins of 16 s. Trials end or pause: b has 2 of 3 trials from 1 h 6 min on.",
  );
  assert.equal(noteOf(chart(), [], "epochs"), "No trial has reported epochs with this metric.");
});

test("a column named like a member of every object groups nothing", () => {
  assert.deepEqual(grouped(runs([{ lr: 1 }]), ["constructor"], new Set()).length, 2);
});

test("a metric also has columns of its extremes", () => {
  const known = [column("field", "id"), column("metric", "validation.loss"), column("hyperparameter", "lr")];

  assert.deepEqual([...allColumns(known).keys()], ["id", "validation.loss", "lr", "min.validation.loss", "max.validation.loss"]);
});

test("a field is a column under the title that the server tells", () => {
  const known = { ...column("field", "verdict"), type: "text", title: "Verdict" };

  assert.equal(allColumns([known]).get("verdict")?.title, "Verdict");
});

test("the table begins with what most trials have", () => {
  const known = [column("metric", "rare"), column("metric", "common", 9), column("metric", "validation.epochs", 9), column("hyperparameter", "lr")];

  assert.deepEqual(standardColumns(known), ["id", "name", "experiment", "state", "steps", "common", "rare", "lr", "started", "duration", "label"]);
  assert.deepEqual(standardColumns(known, true).slice(0, 4), ["id", "state", "common", "lr"]);
  assert.deepEqual(standardColumns([...known, column("field", "owner")]).slice(0, 3), ["id", "owner", "name"]);
});

test("hyperparameters in which trials differ come before constants", () => {
  const known = ["a", "b", "c", "d"].map((name) => ({ ...column("hyperparameter", name, 9), is_constant: true }));

  assert.ok(standardColumns([...known, column("hyperparameter", "learning_rate", 2)]).includes("learning_rate"));
});

test("nested values have dotted names", () => {
  assert.deepEqual(flattened({ a: { b: 1, c: {} }, d: [1], e: null }), [
    ["a.b", "1"],
    ["a.c", "{}"],
    ["d", "[1]"],
    ["e", ""],
  ]);
});

test("a curve is interrupted where nothing was measured for long", () => {
  const found = withGaps(curve("gpu_util", [0, 1, 2, 100, 101]));

  assert.deepEqual(found.x, [0, 1, 2, 51, 100, 101]);
  assert.deepEqual(found.mean, [0, 1, 2, null, 100, 101]);
  assert.deepEqual(found.count, [1, 1, 1, 0, 1, 1]);
});

test("figures of one kind share a chart, and those that are unknown have one each, at the end", () => {
  const charts = figuresOf([curve("constructor", [0]), curve("gpu_util.0", [0]), curve("gpu_util.1", [0], { rank: 1 })]);

  assert.deepEqual(
    charts.map(({ title, curves }) => [title, curves.map(({ label }) => label)]),
    [
      ["GPU", ["0, rank 0", "1, rank 1"]],
      ["gpu constructor", ["rank 0"]],
    ],
  );
});

test("a restart is marked where its step is drawn, if it is drawn", () => {
  const drawn = { series: curve("loss", [1, 2, 3], { x: [10, 20, 30] }), origin: 10 };

  assert.deepEqual(restartMarks([2, 9], [drawn]), [{ x: 10, label: "restart" }]);
  assert.deepEqual(restartMarks([2, 9], []), []);
});

test("the bar of the time has the phases that took some, without the time that was stopped", () => {
  const phases = [
    { name: "training", ms: 750, share: 0.75 },
    { name: "lost", ms: 0, share: 0 },
    { name: "saving", ms: 250, share: 0.25 },
    { name: "stopped", ms: 9000, share: null },
  ];

  assert.deepEqual(
    segmentsOf(phases).map(({ name, percent }) => [name, percent]),
    [
      ["training", 75],
      ["saving", 25],
      ["stopped", 0],
    ],
  );
  assert.equal(new Set(segmentsOf(phases).map(({ colour }) => colour)).size, 3);
});

test("what was asked from a workspace is told with what came of it", () => {
  const request = {
    request_id: "a",
    verb: "pause",
    by: "ada",
    time: 0,
    outcome: /** @type {const} */ ("refused"),
    message: "it does not run",
    answer: null,
  };

  const [asked, told] = factOf(request);

  assert.match(asked, /^pause by ada, /);
  assert.equal(told, "refused: it does not run");
  assert.equal(factOf({ ...request, outcome: "waits", message: "" })[1], "that machine has not answered yet");
});
