/**
 * The token of the server. The address that opens the page has it behind `#`; afterwards it is in no address and no
 * cookie, and this tab keeps a key in its place that ends with the server.
 */

const NAME = "core-sdk.key";
const PATIENCE_MS = 300;

let key = "";
/** The other tabs of this server: one that was opened by a link of the page has nothing in its address. */
const tabs = new BroadcastChannel(NAME);
tabs.addEventListener("message", ({ data }) => {
  if (data === "" && key !== "") tabs.postMessage(key);
});

/** Looks for the token in the address, in this tab and in others. The page asks nothing before. */
export async function findToken() {
  const token = /^#token=(\w+)$/.exec(location.hash)?.[1];
  if (token) history.replaceState(null, "", location.pathname);
  key = (token && (await keyFor(token))) || kept() || (await ofAnotherTab());
  try {
    sessionStorage.setItem(NAME, key);
  } catch {
    // Storage that is switched off: a reload needs the address again.
  }
}

/** Asks the server, as `fetch` does, as somebody who has the token, also for what was read so far. @param {string} url @param {RequestInit} [options] */
export function ask(url, options = {}) {
  return fetch(url, { ...options, headers: { ...options.headers, Authorization: `Bearer ${key}`, "X-Core-SDK-Parts": "1" } });
}

async function keyFor(/** @type {string} */ token) {
  try {
    const response = await fetch("api/v1/session", { headers: { Authorization: `Bearer ${token}` } });
    return response.ok ? (await response.json()).key : "";
  } catch {
    return token; // The server does not answer yet.
  }
}

function kept() {
  try {
    return sessionStorage.getItem(NAME) ?? "";
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
