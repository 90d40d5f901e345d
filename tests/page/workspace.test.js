/** The workspace: which trials have curves, how these look, and how charts are arranged. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { textsAt } from "../../core_sdk/_interfaces/server/page/charts/chart.js";
import { limited, moved, traceAt, traceOf } from "../../core_sdk/_interfaces/server/page/charts/curves.js";
import { heapsOf } from "../../core_sdk/_interfaces/server/page/charts/plot.js";
import { isSeen, withEyes } from "../../core_sdk/_interfaces/server/page/views/workspace/eyes.js";
import { facetsOf, sharedScales } from "../../core_sdk/_interfaces/server/page/views/workspace/facets.js";
import {
  matcher,
  metricsOf,
  neighbour,
  newId,
  readPanels,
  sectionsOf,
  withChange,
  withMove,
  writtenPanels,
} from "../../core_sdk/_interfaces/server/page/views/workspace/panels.js";
import { curvesOf, marksOf } from "../../core_sdk/_interfaces/server/page/views/workspace/trial-curves.js";
import {
  colourOfGroups,
  looksOf,
  slotsOfGroups,
  slotsOfTrials,
  trialSubjects,
} from "../../core_sdk/_interfaces/server/page/views/workspace/subjects.js";

/** @import { Curve } from "api" */
/** @import { Mark } from "../../core_sdk/_interfaces/server/page/charts/plot.js" */
/** @import { Run } from "../../core_sdk/_interfaces/server/page/views/runs/grouping.js" */

const RAMP = ["#000000", "#ffffff"];

/** @param {number} id @param {Record<string, unknown>} values */
const run = (id, values) => /** @type {Run} */ ({ key: String(id), values: /** @type {unknown} */ ({ id, ...values }) });

test("the first trials have eyes that are open, others those that were opened", () => {
  const isFirst = (/** @type {string} */ id) => Number(id) <= 2;

  const opened = withEyes(withEyes([], ["1"], false, isFirst), ["3"], true, isFirst);

  assert.deepEqual(opened, ["-1", "3"]);
  assert.deepEqual(
    ["1", "2", "3", "4"].map((id) => isSeen(opened, id, isFirst(id))),
    [false, true, true, false],
  );
  assert.deepEqual(withEyes(opened, ["1", "3"], true, isFirst), ["3"]);
  assert.deepEqual(withEyes(["none"], ["1"], true, isFirst), ["none", "1"]);
});

test("the look of a curve depends on the trials that are shown, and on nothing before", () => {
  const all = slotsOfTrials([3, 1, 2, 13]);

  assert.deepEqual(
    [...all],
    [
      ["1", 0],
      ["2", 1],
      ["3", 2],
      ["13", 3],
    ],
  );
  assert.equal(slotsOfTrials([2, 3]).get("3"), all.get("3"));
  assert.equal(new Set([...slotsOfTrials([10, 20, 30, 40]).values()].map((slot) => slot % 10)).size, 4);
  assert.equal(new Set(slotsOfTrials(Array.from({ length: 40 }, (_, index) => 3 * index + 5)).values()).size, 40);
  assert.deepEqual(
    [...slotsOfGroups(["[10]", "[2]"])],
    [
      ["[2]", 0],
      ["[10]", 1],
    ],
  );
});

test("groups by one number have its scale, and others colours of their own", () => {
  const subjects = [1, 2, 3].map((lr) => ({ values: { started: 0, steps: 0, lr, kind: "a" } }));

  assert.deepEqual(
    [["lr"], ["lr", "kind"], ["kind"]].map((names) => colourOfGroups(subjects, names, "")),
    ["lr", "", ""],
  );
  assert.deepEqual([colourOfGroups(subjects, ["lr"], "group"), colourOfGroups(subjects, ["lr", "kind"], "kind")], ["", "kind"]);
});

test("trials are called by the hyperparameters in which they differ", () => {
  const subjects = trialSubjects([run(1, { lr: 0.1, seed: 1 }), run(2, { lr: 0.2, seed: 1, name: "warm" })], ["lr", "seed"]);

  assert.deepEqual(
    subjects.map(({ label }) => label),
    ["1 · lr 0.1", "warm 2 · lr 0.2"],
  );
});

test("thirty trials are told apart, also where they share a colour", () => {
  const subjects = trialSubjects(
    Array.from({ length: 30 }, (_, index) => run(index + 1, { lr: 1, state: "ERROR" })),
    [],
  );
  const slots = slotsOfTrials(subjects.map(({ ids }) => ids[0]));
  const options = { isGrouped: false, isLogarithmic: null, ramp: RAMP };

  const { looks } = looksOf(subjects, slots, { by: "", ...options });

  assert.equal(new Set([...looks.values()].map((look) => JSON.stringify(look))).size, 30);
  assert.deepEqual(looksOf(subjects, slots, { by: "state", ...options }).legend?.values, [{ text: "ERROR", colour: "--error" }]);
});

test("numbers have a scale of colours, which may be logarithmic", () => {
  const subjects = trialSubjects([run(1, { lr: 1 }), run(2, { lr: 10 }), run(3, { lr: 100 }), run(4, {})], []);
  const coloursOf = (/** @type {boolean} */ isLogarithmic) =>
    [...looksOf(subjects, new Map(), { by: "lr", isGrouped: false, isLogarithmic, ramp: RAMP }).looks.values()].map(({ colour }) => colour);

  assert.deepEqual(coloursOf(true), ["rgb(0 0 0)", "rgb(128 128 128)", "rgb(255 255 255)", "--line-strong"]);
  assert.deepEqual(coloursOf(false)[1], "rgb(23 23 23)");
});

test("panels hold only what differs, and survive their setting", () => {
  const panels = withChange(withChange([], "a.loss", { pin: true }), "+1", { re: "loss", y: [0, null] });

  const text = writtenPanels(panels);

  assert.equal(text, '[{"id":"a.loss","pin":true},{"id":"+1","re":"loss","y":[0,null]}]');
  assert.deepEqual(readPanels(text), panels);
  assert.equal(writtenPanels(withChange(panels.slice(0, 1), "a.loss", { pin: false })), "");
  assert.equal(newId(panels), "+2");
});

test("pinned panels come first, in their order, the others by group, and counts only if they are looked for", () => {
  const metrics = ["a.x", "a.batches", "b.y", "b.z"];
  const panels = ["b.z", "a.x", "gone"].reduce((all, id) => withChange(all, id, { pin: true }), readPanels(""));
  const idsOf = (/** @type {ReturnType<typeof readPanels>} */ of, search = "", first = "") =>
    sectionsOf(of, metrics, search, first, false).map((section) => [section.title, ...section.panels.map(({ id }) => id)]);

  assert.deepEqual(idsOf(panels), [
    ["Pinned", "b.z", "a.x"],
    ["b", "b.y"],
  ]);
  assert.deepEqual(idsOf([], "", "b.y"), [
    ["b", "b.y", "b.z"],
    ["a", "a.x"],
  ]);
  assert.deepEqual(idsOf([], "batch"), [["a", "a.batches"]]);
  assert.deepEqual(idsOf(panels, "^b"), [
    ["Pinned", "b.z"],
    ["b", "b.y"],
  ]);
  assert.deepEqual(
    withMove(panels, "b.y", "b.z").map(({ id }) => id),
    ["b.y", "b.z", "a.x", "gone"],
  );
  assert.deepEqual(
    withMove(panels, "b.z", "a.x").map(({ id }) => id),
    ["a.x", "b.z", "gone"],
  );
  assert.deepEqual([neighbour(panels, "a.x", -1), neighbour(panels, "b.z", -1)], ["b.z", undefined]);
});

test("a search that is no regular expression is text", () => {
  assert.equal(matcher("loss (")("my loss (old)"), true);
  assert.equal(matcher("^a|b$")("cab"), true);
});

test("a logarithmic axis is zoomed and panned by factors", () => {
  const halved = moved([1, 10_000], [1, 10_000], true, (from, to) => [from, from + (to - from) / 2]);

  assert.ok(halved && Math.abs(halved[1] - 100) < 1e-9);
  assert.equal(
    moved([1, 9], [0, 10], false, () => [-5, 20]),
    null,
  );
});

test("limits stand in the place of an end, unless nothing would be left", () => {
  assert.deepEqual(limited([1, 2], [0, null], false), [0, 2]);
  assert.deepEqual(limited([1, 2], [0, null], true), [1, 2]);
  assert.deepEqual(limited([1, 2], [3, null], false), [1, 2]);
});

test("the curve under the pointer is the nearest one, also between its points", () => {
  const traces = [0, 10].map((height) => {
    const values = [height, height];
    return traceOf({ label: String(height), colour: "", series: { x: [0, 100], minimum: values, maximum: values, mean: values } }, 0);
  });
  const at = (/** @type {number} */ top) =>
    traceAt(traces, { x: 50, left: 50, top }, (trace, index) => [trace.places[index], trace.means[index]], 4)?.label;

  assert.deepEqual([at(1), at(8), at(5)], ["0", "10", undefined]);
});

test("metrics of one name may share a chart, whatever their group, and others keep theirs", () => {
  const metrics = ["training.loss", "training.a.b", "validation.loss", "validation.lossy"];

  const [section, ...others] = sectionsOf(readPanels(""), metrics, "", "", true);

  assert.deepEqual(others, []);
  assert.deepEqual(
    section.panels.map((panel) => [panel.id, panel.title, ...metricsOf(panel, metrics)]),
    [
      ["*.loss", "loss", "training.loss", "validation.loss"],
      ["training.a.b", "", "training.a.b"],
      ["validation.lossy", "", "validation.lossy"],
    ],
  );
  assert.deepEqual(readPanels(writtenPanels(withChange([], "*.loss", { big: true })))[0].title, "loss");
});

/** @param {string} name @param {Partial<Curve>} [other] @returns {Curve} */
const curve = (name, other) => {
  const steps = [1, 2, 3];
  const columns = { first_steps: steps, last_steps: steps, x: [101, 102, 103], count: [1, 1, 1], minimum: steps, maximum: steps, mean: steps };
  return { group: "training", name, ...columns, attempt: null, rank: null, last: 3, ...other };
};
const subject = { key: "7", name: "otter-7", label: "otter-7 · lr 1", ids: [7], values: { started: 100, steps: 3 } };
const alert = {
  trial_id: 7,
  attempt: 1,
  steps_completed: 2,
  time: 105,
  title: "Spike",
  description: "it is 7",
  level: "error",
  is_superseded: false,
};
const answer = {
  curves: [curve("loss"), curve("lr")],
  superseded: [curve("loss", { attempt: 1 })],
  resume_points: [2],
  alerts: [alert],
  num_left_out: 0,
};

test("the metrics of one trial have colours of their own, and of several trials the trial's", () => {
  const options = { names: ["training.loss", "training.lr"], axis: "time", hasAllRanks: false };

  const own = curvesOf({ ...subject, label: "" }, answer, { ...options, look: null });
  const compared = curvesOf(subject, answer, { ...options, look: { colour: "--series-5", dash: [] } });

  assert.deepEqual(
    own.map(({ label, colour, isFaint }) => [label, colour, isFaint]),
    [
      ["training.loss, attempt 1", "--series-1", true],
      ["training.loss", "--series-1", false],
      ["training.lr", "--series-2", false],
    ],
  );
  assert.deepEqual(
    compared.slice(1).map(({ key, label, colour, dash, origin }) => [key, label, colour, dash.length, origin]),
    [
      ["7", "otter-7 · lr 1, training.loss", "--series-5", 0, 100],
      ["7", "otter-7 · lr 1, training.lr", "--series-5", 2, 100],
    ],
  );
});

test("an alert has the colour of its trial's curve, and its name, where several are compared", () => {
  const marksOn = (/** @type {string} */ axis, /** @type {{colour: string, dash: number[]} | null} */ look) => {
    const options = { names: ["training.loss"], axis, hasAllRanks: false, look };
    return marksOf(subject, answer, curvesOf(subject, answer, options), options);
  };

  assert.deepEqual(marksOn("steps", { colour: "--series-5", dash: [] }), [
    { x: 2, label: "", key: "7", text: "otter-7: Spike", colour: "--series-5" },
  ]);
  assert.deepEqual(marksOn("time", null), [
    { x: 2, label: "restart" },
    { x: 5, label: "", text: "Spike: it is 7", colour: "--error" },
  ]);
  assert.deepEqual(
    marksOn("epochs", null).map(({ x }) => x),
    [102, 102],
  );
});

test("repeated alerts of a trial are one mark with their number, and its words say how often each was given", () => {
  const alertAt = (/** @type {number} */ x, /** @type {string} */ text, /** @type {Partial<Mark>} */ other) => ({
    x,
    label: "",
    text,
    colour: "--paused",
    ...other,
  });
  const marks = [
    alertAt(90, "late", {}),
    alertAt(10, "slow", {}),
    { x: 11, label: "restart" },
    alertAt(11, "slow", {}),
    alertAt(11.5, "NaN", { colour: "--error" }),
    alertAt(11.5, "other trial", { key: "8" }),
  ];
  const leftOf = (/** @type {number} */ x) => 4 * x;

  const heaps = heapsOf(marks, leftOf);
  const zoomed = heapsOf(marks, (x) => 40 * leftOf(x));

  assert.deepEqual(
    heaps.map(({ x, colour, members }) => [x, colour, members.length]),
    [
      [10, "--error", 3],
      [11, undefined, 1],
      [11.5, "--paused", 1],
      [90, "--paused", 1],
    ],
  );
  assert.deepEqual(
    zoomed.map(({ members }) => members.length),
    [1, 1, 1, 1, 1, 1],
  );
  assert.deepEqual(textsAt(heaps, 10.2, [0, 100]), ["slow (2 times)", "NaN", "other trial"]);
  assert.deepEqual(textsAt(heaps, null, [0, 100]), []);
});

test("a formula may mean any metric whose name stands in it, in whatever group", () => {
  const metrics = ["training.loss", "training.val/loss", "training.lr", "validation.loss"];
  const of = (/** @type {string} */ formula) => metricsOf({ of: [], re: "", formula }, metrics);

  assert.deepEqual(of("exp(loss) / 2"), ["training.loss", "validation.loss"]);
  assert.deepEqual(of('"val/loss" - training.lr'), ["training.loss", "training.val/loss", "training.lr", "validation.loss"]);
  assert.deepEqual(of("nothing"), []);
});

test("a chart is split by a value into panels in the order of values, which share their scales", () => {
  const subjects = [{ id: 1, lr: 0.1, label: ["b", "a"] }, { id: 2, lr: 1e-5 }, { id: 3, lr: 0.1, label: [] }, { id: 4 }, { id: 5, lr: "auto" }].map(
    ({ id, ...values }) => ({ key: String(id), values: { started: 0, steps: 1, ...values } }),
  );
  const told = (/** @type {string} */ name) => facetsOf(subjects, name).map(({ text, keys }) => `${text}: ${keys}`);
  const frame = { zoom: null, smoothing: 0, soFar: /** @type {const} */ (""), isLogX: false, isLogarithmic: false, ignoresOutliers: false };
  const high = { label: "high", colour: "", series: curve("loss", { minimum: [1, 2, 90], mean: [1, 2, 95], maximum: [1, 2, 100], x: [0, 5, 9] }) };
  const low = { label: "low", colour: "", series: curve("loss") };

  const { whole, limits } = sharedScales([high, low], { ...frame, limits: [null, 50] });

  assert.deepEqual(told("lr"), ["1e-5: 2", "0.1: 1,3", "auto: 5", "none: 4"]);
  assert.deepEqual(told("label"), ["b, a: 1", "none: 2,3,4,5"]);
  assert.deepEqual(whole, [0, 103]);
  assert.ok(limits[0] !== null && limits[0] < 1 && limits[1] === 50, String(limits));
});
