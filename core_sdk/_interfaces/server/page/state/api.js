/** Questions to the server, and actions. Every failure is an `ApiError` in words for a person. */

import { ask } from "./token.js";

/** @import { Action, Address, BodyOf, QueryOf, Question, RouteAt } from "api" */

const ROOT = "api/v1";

/** What went wrong: the server's words, or that it cannot be reached. */
export class ApiError extends Error {
  /** @param {{kind: string, message: string, hint?: string, place?: number, present?: string}} problem @param {number} status */
  constructor({ kind, message, hint = "", place, present }, status) {
    super(message);
    this.kind = kind;
    this.hint = hint;
    this.place = place;
    this.present = present;
    this.status = status;
  }

  /** Whether the same question may be answered a little later: the server is away or has too much to do. */
  get isPassing() {
    return this.kind === "unreachable" || this.status === 503;
  }
}

/**
 * The address of a resource.
 * @template {readonly (string | number)[]} const Path
 * @param {Path} path
 * @param {QueryOf<Path>} [query] What is null or empty is left out; of a list each item is a parameter.
 * @returns {Address<RouteAt<Question, Path>["answer"]>}
 */
export function address(path, query) {
  return /** @type {Address<RouteAt<Question, Path>["answer"]>} */ (urlOf(path, query));
}

/** @param {readonly (string | number)[]} path @param {object} [query] */
function urlOf(path, query = {}) {
  const given = Object.entries(query).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).filter((one) => one != null && one !== "").map((one) => [name, String(one)]),
  );
  const text = new URLSearchParams(given).toString();
  return `${ROOT}/${path.map((part) => encodeURIComponent(part)).join("/")}${text && `?${text}`}`;
}

/**
 * What the server answers to a question.
 * @template Answer
 * @param {Address<Answer>} url
 * @param {AbortSignal} [signal]
 * @returns {Promise<Answer>}
 */
export async function get(url, signal) {
  return answer(() => ask(url, { signal, headers: { Accept: "application/json" } }), "The page asks again by itself.");
}

/**
 * The content of a file of the server.
 * @param {string} url
 * @param {AbortSignal} [signal]
 * @returns {Promise<Blob>}
 */
export async function getContent(url, signal) {
  const response = await fetched(() => ask(url, { signal }), "");
  if (response.ok) return response.blob();
  throw new ApiError(problemOf(await response.text(), response.status), response.status);
}

/**
 * Does something to a trial, an experiment or a checkpoint.
 * @template {readonly (string | number)[]} const Path
 * @param {Path} path
 * @param {BodyOf<Path>} [body]
 * @returns {Promise<RouteAt<Action, Path>["answer"]>}
 */
export async function act(path, body) {
  const headers = { "Content-Type": "application/json", "X-Core-SDK-Action": "1" };
  return answer(() => ask(urlOf(path), { method: "POST", headers, body: JSON.stringify(body ?? {}) }), "It is not known whether it was done.");
}

async function answer(/** @type {() => Promise<Response>} */ asked, /** @type {string} */ whenUnreachable) {
  const response = await fetched(asked, whenUnreachable);
  const text = await response.text();
  if (response.ok) return text === "" ? null : JSON.parse(text);
  throw new ApiError(problemOf(text, response.status), response.status);
}

async function fetched(/** @type {() => Promise<Response>} */ asked, /** @type {string} */ whenUnreachable) {
  try {
    return await asked();
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError({ ...UNREACHABLE, hint: `${UNREACHABLE.hint} ${whenUnreachable}` }, 0);
  }
}

export const UNREACHABLE = { kind: "unreachable", message: "The server does not answer.", hint: "Is `core-sdk ui` still running?" };

function problemOf(/** @type {string} */ text, /** @type {number} */ status) {
  try {
    const { error } = JSON.parse(text);
    if (error?.message) return error;
  } catch {
    // Not an answer of this server, for example a proxy's page.
  }
  return { kind: "unexpected", message: `The server answered with status ${status}.` };
}
