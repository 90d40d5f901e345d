/** What the server says has changed, as one stream for the whole page. */

import { useEffect, useRef, useState } from "../preact.js";
import { ask } from "./token.js";

/**
 * What to ask for again.
 * @typedef {{trials: number[], experiments: number[], isMaster: boolean}} Change Trials may be gone.
 */
/**
 * What the stream says; what has not changed is left out.
 * @typedef {{trials?: number[], gone?: number[], experiments?: number[], has_master?: boolean | null, everything?: boolean}} Told
 */
/** @typedef {"connecting" | "live" | "interrupted" | "refused"} Connection */

/** @type {Set<(change: Change, isEverything: boolean) => void>} */
const listeners = new Set();
/** @type {Set<(connection: Connection) => void>} */
const watchers = new Set();
/** @type {Connection} */
let connection = "connecting";

/** @type {Change} */
const NOTHING = { trials: [], experiments: [], isMaster: false };

/** @type {AbortController | null} */
let stream = null;
let wasLive = false;
const PAUSE_MS = 1000;
const PAUSE_AFTER_REFUSAL_MS = 5000;

/**
 * Keeps the stream open while the page is seen. A browser has six connections to a server for all of its tabs, and each
 * stream takes one: tabs that are not looked at must leave theirs to the others.
 */
export function openEvents() {
  const update = () => (document.hidden ? disconnect() : connect());
  document.addEventListener("visibilitychange", update);
  update();
}

/** Reads the stream until it ends, and then tries again. An `EventSource` could not bring the token. */
async function connect() {
  if (stream !== null) return;
  const own = (stream = new AbortController());
  let isRefused = false;
  try {
    const response = await ask("api/v1/events", { signal: own.signal });
    isRefused = !response.ok;
    if (!isRefused) await follow(response);
  } catch {
    // The server does not answer, or has ended; or the page is not seen any more.
  }
  if (stream !== own) return;
  stream = null;
  become(isRefused ? "refused" : "interrupted");
  if (isRefused) tellEverybody(); // The answers say why: a server that was started again has another token.
  setTimeout(() => document.hidden || connect(), isRefused ? PAUSE_AFTER_REFUSAL_MS : PAUSE_MS);
}

async function follow(/** @type {Response} */ response) {
  // Nobody has told what changed meanwhile, and answers may have failed.
  if (wasLive) tellEverybody();
  wasLive = true;
  become("live");
  const reader = /** @type {ReadableStream<BufferSource>} */ (response.body).pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (text + value).split("\n\n");
    text = events.pop() ?? "";
    for (const event of events) {
      const change = /^event: change\ndata: (.*)$/m.exec(event);
      if (change) tell(JSON.parse(change[1]));
    }
  }
}

/** @param {Told} told */
function tell({ trials = [], gone = [], experiments = [], has_master: master = null, everything = false }) {
  const change = { trials: [...trials, ...gone], experiments, isMaster: master != null };
  for (const listener of listeners) listener(change, everything);
}

function tellEverybody() {
  for (const listener of listeners) listener(NOTHING, true);
}

function disconnect() {
  stream?.abort();
  stream = null;
  become("connecting");
}

/** Calls `listener` at each change that `concerns` accepts, and when more has changed than is told. */
export function useChanges(/** @type {(change: Change) => boolean} */ concerns, /** @type {(change: Change) => void} */ listener) {
  const newest = useRef({ concerns, listener });
  newest.current = { concerns, listener };
  useEffect(() => {
    const hear = (/** @type {Change} */ change, /** @type {boolean} */ isEverything) => {
      if (isEverything || newest.current.concerns(change)) newest.current.listener(change);
    };
    listeners.add(hear);
    return () => void listeners.delete(hear);
  }, []);
}

/** Returns the state of the stream. @returns {Connection} */
export function useConnection() {
  const [value, setValue] = useState(connection);
  useEffect(() => {
    watchers.add(setValue);
    setValue(connection);
    return () => void watchers.delete(setValue);
  }, []);
  return value;
}

function become(/** @type {Connection} */ next) {
  connection = next;
  for (const watcher of watchers) watcher(next);
}
