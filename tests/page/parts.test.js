/** What several views use: text, tables, colours of a terminal, differences. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { piecesOf } from "../../core_sdk/_interfaces/server/page/parts/ansi.js";
import { linesOfDifference } from "../../core_sdk/_interfaces/server/page/parts/difference.js";
import { own } from "../../core_sdk/_interfaces/server/page/parts/own.js";
import { csvText } from "../../core_sdk/_interfaces/server/page/parts/saving.js";
import {
  counted,
  escaped,
  formatAge,
  formatDuration,
  formatNumber,
  formatSize,
  formatValue,
} from "../../core_sdk/_interfaces/server/page/parts/text.js";

test("numbers have few digits, and whole ones all of theirs", () => {
  const numbers = [0.00012, 1234567, 0.5, 1e12, 0, -3.14159, "NaN", null, undefined];

  assert.deepEqual(
    numbers.map((one) => formatNumber(one)),
    ["1.2e-4", "1,234,567", "0.5", "1e12", "0", "-3.142", "NaN", "", ""],
  );
  assert.equal(formatNumber(3.14159, 2), "3.1");
});

test("any value of a hyperparameter has a text", () => {
  assert.deepEqual([null, 0.5, true, "adam", [1, "a"], { a: 1 }].map(formatValue), ["", "0.5", "true", "adam", '[1,"a"]', '{"a":1}']);
});

test("sizes, durations and ages have a unit that suits them", () => {
  assert.deepEqual([0, 1023, 1536, 5 * 2 ** 30, 2 ** 50].map(formatSize), ["0 B", "1023 B", "1.5 KiB", "5.0 GiB", "1024 TiB"]);
  assert.deepEqual([4.25, 61, 7322, 200000].map(formatDuration), ["4.3 s", "1 min 1 s", "2 h 2 min", "2 d 7 h"]);
  assert.deepEqual(
    [0, 59, 61, 7200, 3 * 86400].map((age) => formatAge(1e9 - age, 1e9)),
    ["just now", "just now", "1 min ago", "2 h ago", "3 d ago"],
  );
  assert.deepEqual(
    [0, 1, 1000].map((number) => counted(number, "trial")),
    ["0 trials", "1 trial", "1,000 trials"],
  );
});

test("text stays text within markup", () => {
  assert.equal(escaped('<b a="1">\'&amp;'), "&#60;b a=&#34;1&#34;&#62;&#39;&#38;amp;");
});

test("a table is saved without anything that a spreadsheet would run", () => {
  const rows = [
    ["=1+1", -1, 'a,"b'],
    [null, true, "-x"],
    ["-1", ["+a"], "@b"],
  ];

  assert.equal(csvText(rows), '\'=1+1,-1,"a,""b"\r\n,true,\'-x\r\n-1,"[""+a""]",\'@b\r\n');
});

test("output has the colours that a terminal would show, and nothing else that it obeys", () => {
  assert.deepEqual(piecesOf("\u001b[31mred\u001b[0m \u001b[1;4mboth\u001b[22m\u001b[2K"), [
    { text: "red", style: "ansi-1" },
    { text: " ", style: "" },
    { text: "both", style: "ansi-bold ansi-underlined" },
  ]);
  assert.deepEqual(piecesOf("\u001b[38;5;200mpink\u001b]0;title\u0007"), [{ text: "pink", style: "" }]);
});

test("lines that differ are told, with their numbers on each side", () => {
  assert.deepEqual(linesOfDifference("a\nb\n", "a\nc\n"), [
    { kind: "same", text: "a", left: 1, right: 1 },
    { kind: "removed", text: "b", left: 2, right: null },
    { kind: "added", text: "c", left: null, right: 2 },
  ]);
});

test("a name that every object has is not taken for one of a run", () => {
  const values = /** @type {Record<string, number>} */ (Object.fromEntries([["__proto__", 1]]));

  assert.equal(own(values, "__proto__"), 1);
  assert.equal(own(values, "constructor"), undefined);
});
