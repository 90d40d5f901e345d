/** Addresses of the server and of views, and tasks that are wanted often. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { address } from "../../core_sdk/_interfaces/server/page/state/api.js";
import { coalesced } from "../../core_sdk/_interfaces/server/page/state/coalescing.js";
import { linkTo, splitNames } from "../../core_sdk/_interfaces/server/page/state/place.js";

test("an address has each item of a list, and nothing that is empty", () => {
  const query = { names: ["loss", "a,b&c"], group: "", first: null, superseded: false, rank: "all" };

  assert.equal(address(["trials", 3, "metrics"], query), "api/v1/trials/3/metrics?names=loss&names=a%2Cb%26c&superseded=false&rank=all");
  assert.equal(address(["checkpoints", "a/b?"]), "api/v1/checkpoints/a%2Fb%3F");
});

test("a link leaves out what is not set", () => {
  assert.equal(linkTo(["trials", 3, "logs"], { rank: 0, search: "", level: null }), "#/trials/3/logs?rank=0");
  assert.equal(linkTo(["runs"]), "#/runs");
});

test("a comma separates names, unless it is escaped", () => {
  assert.deepEqual(splitNames(""), []);
  assert.deepEqual(splitNames("loss,a\\,b,back\\\\slash"), ["loss", "a,b", "back\\slash"]);
});

test("a task that is wanted while it runs, however often, runs once more", async () => {
  let numRuns = 0;
  const run = coalesced(async () => {
    numRuns += 1;
    await Promise.resolve();
  });

  await Promise.all([run(), run(), run(), run()]);

  assert.equal(numRuns, 2);
});

test("a task that has failed can be wanted again", async () => {
  let numRuns = 0;
  const run = coalesced(async () => {
    numRuns += 1;
    if (numRuns === 1) throw new Error("no network");
  });

  await assert.rejects(run(), /no network/);
  await run();

  assert.equal(numRuns, 2);
});
