/** Contents of files of media. Each is asked for once, and the latest are kept, so that a slider shows them at once. */

import { useEffect, useState } from "../preact.js";
import { address, getContent } from "./api.js";
/** @import { MediaItem } from "api" */
/** @import { ApiError } from "./api.js" */

const MAX_KEPT_BYTES = 256 << 20;
const MAX_PREFETCHED_BYTES = 96 << 20;
const NUM_AT_ONCE = 4;

/**
 * @typedef {object} Content
 * @property {Promise<void>} arrival It never fails.
 * @property {number} sizeBytes
 * @property {string} url Where the browser has it; empty until it has arrived.
 * @property {string | null} text What it says, if it is text or JSON.
 * @property {Blob | null} blob
 * @property {ApiError | null} error
 */

/** @type {Map<string, Content>} */
const kept = new Map();
let numKeptBytes = 0;

const isText = (/** @type {MediaItem} */ { media_type: type }) => type === "application/json" || type.startsWith("text/");

const keyOf = (/** @type {number} */ trialId, /** @type {MediaItem} */ item) => `${trialId}/${item.file_name}`;

/** The content of a file, which may not have arrived yet. @param {number} trialId @param {MediaItem} item @returns {Content} */
export function contentOf(trialId, item) {
  const key = keyOf(trialId, item);
  const known = kept.get(key);
  if (known) {
    kept.delete(key);
    kept.set(key, known);
    return known;
  }
  /** @type {Content} */
  const content = { arrival: Promise.resolve(), sizeBytes: item.size_bytes, url: "", text: null, blob: null, error: null };
  content.arrival = fill(content, trialId, item);
  numKeptBytes += item.size_bytes;
  kept.set(key, content);
  forgetOldest();
  return content;
}

/** @param {Content} content @param {number} trialId @param {MediaItem} item */
async function fill(content, trialId, item) {
  try {
    content.blob = await getContent(address(["trials", trialId, "media", item.file_name]));
    content.text = isText(item) ? await content.blob.text() : null;
    content.url = URL.createObjectURL(content.blob);
  } catch (error) {
    content.error = /** @type {ApiError} */ (error);
  }
}

/** Lets a content that has not arrived be asked for again. @param {number} trialId @param {MediaItem} item */
export function forgetFailure(trialId, item) {
  const known = kept.get(keyOf(trialId, item));
  if (known?.error) forget(keyOf(trialId, item), known);
}

function forgetOldest() {
  for (const [key, content] of kept) {
    if (numKeptBytes <= MAX_KEPT_BYTES || kept.size === 1) return;
    forget(key, content);
  }
}

function forget(/** @type {string} */ key, /** @type {Content} */ content) {
  kept.delete(key);
  numKeptBytes -= content.sizeBytes;
  if (content.url) URL.revokeObjectURL(content.url);
}

/**
 * The contents of files, and a new rendering whenever one arrives. One that has no file has no content.
 * @param {number} trialId
 * @param {(MediaItem | null)[]} items
 * @param {number} [turn] Another one looks again.
 * @returns {(Content | null)[]}
 */
export function useContents(trialId, items, turn = 0) {
  const [, redraw] = useState(0);
  const contents = items.map((item) => (item === null || item.problem ? null : contentOf(trialId, item)));
  useEffect(() => {
    let isShown = true;
    const waited = contents.filter((content) => content && !content.blob && !content.error);
    for (const content of waited) content?.arrival.then(() => isShown && redraw((last) => last + 1));
    return () => {
      isShown = false;
    };
  }, [trialId, turn, items.map((item) => item?.file_name).join()]);
  return contents;
}

/** Asks for files before they are shown, a few at a time. @param {{trialId: number, item: MediaItem}[]} wanted The most urgent first. */
export function usePrefetched(wanted) {
  useEffect(() => {
    let isWanted = true;
    let numBytes = 0;
    const waiting = wanted.values();
    const work = async () => {
      for (const { trialId, item } of waiting) {
        numBytes += item.size_bytes;
        if (!isWanted || numBytes > MAX_PREFETCHED_BYTES) return;
        if (!item.problem) await contentOf(trialId, item).arrival;
      }
    };
    for (let index = 0; index < NUM_AT_ONCE; index += 1) work();
    return () => {
      isWanted = false;
    };
  }, [wanted]);
}
