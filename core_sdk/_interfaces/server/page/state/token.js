/**
 * The token of the server. The address that opens the page has it behind `#`; afterwards it is in no address, and this
 * tab keeps a key in its place that ends with the server, or with the token. At a lab's address, a tab without a key
 * asks with the cookie of whoever has signed in, which no script can read.
 */

const NAME = "core-sdk.key";
/** A lab has a page for each workspace at one address: the key of one is none for another. */
const PLACE = `${NAME}${globalThis.location?.pathname ?? "/"}`;
const PATIENCE_MS = 300;

let key = "";
/** The other tabs of this page: one that was opened by a link of the page has nothing in its address. */
const tabs = new BroadcastChannel(PLACE);
tabs.addEventListener("message", ({ data }) => {
  if (data === "" && key !== "") tabs.postMessage(key);
});

/** Looks for the token in the address, in this tab and in others. The page asks nothing before. */
export async function findToken() {
  const [, token, place = ""] = /^#token=(\w+)(\/[\w/]*)?$/.exec(location.hash) ?? [];
  if (token) history.replaceState(null, "", location.pathname + (place && `#${place}`));
  keepKey((token && (await keyFor(token))) || kept(PLACE) || kept(`${NAME}/`) || (await ofAnotherTab()));
}

/** Lets this tab ask with this key, also after a reload. @param {string} found */
export function keepKey(found) {
  key = found;
  try {
    sessionStorage.setItem(PLACE, key);
  } catch {
    // Storage that is switched off: a reload needs the address again.
  }
}

/** Asks the server, as `fetch` does, as somebody who has the token, also for what was read so far. @param {string} url @param {RequestInit} [options] */
export function ask(url, options = {}) {
  return fetch(url, { ...options, headers: { ...options.headers, ...(key && { Authorization: `Bearer ${key}` }), "X-Core-SDK-Parts": "1" } });
}

async function keyFor(/** @type {string} */ token) {
  try {
    const response = await fetch("api/v1/session", { headers: { Authorization: `Bearer ${token}` } });
    return response.ok ? (await response.json()).key : "";
  } catch {
    return token; // The server does not answer yet.
  }
}

function kept(/** @type {string} */ name) {
  try {
    return sessionStorage.getItem(name) ?? "";
  } catch {
    return "";
  }
}

/** @returns {Promise<string>} */
function ofAnotherTab() {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, PATIENCE_MS, "");
    tabs.addEventListener("message", ({ data }) => {
      if (data === "") return;
      clearTimeout(timer);
      resolve(data);
    });
    tabs.postMessage("");
  });
}
