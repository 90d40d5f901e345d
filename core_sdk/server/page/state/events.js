/** What the server says has changed, as one stream for the whole page. */

import { useEffect, useRef, useState } from "../preact.js";

/**
 * What to ask for again.
 * @typedef {{trials: number[], experiments: number[], isMaster: boolean}} Change Trials may be gone.
 */
/** @typedef {"connecting" | "live" | "interrupted"} Connection */

/** @type {Set<(change: Change, isEverything: boolean) => void>} */
const listeners = new Set();
/** @type {Set<(connection: Connection) => void>} */
const watchers = new Set();
/** @type {Connection} */
let connection = "connecting";

/** @type {Change} */
const NOTHING = { trials: [], experiments: [], isMaster: false };

/** @type {EventSource | null} */
let source = null;
let wasLive = false;
const PAUSE_MS = 5000;

/**
 * Keeps the stream open while the page is seen. A browser has six connections to a server for all of its tabs, and each
 * stream takes one: tabs that are not looked at must leave theirs to the others.
 */
export function openEvents() {
  const update = () => (document.hidden ? disconnect() : connect());
  document.addEventListener("visibilitychange", update);
  update();
}

function connect() {
  if (source !== null) return;
  source = new EventSource("api/v1/events");
  source.addEventListener("open", () => {
    // Nobody has told what changed meanwhile, and answers may have failed.
    if (wasLive) tellEverybody();
    wasLive = true;
    become("live");
  });
  source.addEventListener("error", () => {
    become("interrupted");
    if (source?.readyState !== EventSource.CLOSED) return; // The browser tries again by itself.
    source = null;
    tellEverybody(); // The answers say why: a server that was started again has another token.
    setTimeout(() => document.hidden || connect(), PAUSE_MS);
  });
  source.addEventListener("change", (event) => {
    const { trials = [], gone = [], experiments = [], has_master: master, everything } = JSON.parse(/** @type {MessageEvent} */ (event).data);
    const change = { trials: [...trials, ...gone], experiments, isMaster: master != null };
    for (const listener of listeners) listener(change, everything === true);
  });
}

function tellEverybody() {
  for (const listener of listeners) listener(NOTHING, true);
}

function disconnect() {
  source?.close();
  source = null;
  become("connecting");
}

/** Calls `listener` at each change that `concerns` accepts, and when more has changed than is told. */
export function useChanges(
  /** @type {(change: Change) => boolean} */ concerns,
  /** @type {(change: Change) => void} */ listener,
) {
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

/** How the stream stands. @returns {Connection} */
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
