/** Numbers, sizes, times and values as text, and text within markup. */

/** A number with at most `digits` significant digits, but whole ones in full; other values as they are. */
export function formatNumber(/** @type {unknown} */ value, digits = 4) {
  if (typeof value !== "number") return value == null ? "" : String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return value.toLocaleString("en-US");
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) return tidy(value.toExponential(Math.min(digits - 1, 3)));
  return String(Number(value.toPrecision(digits)));
}

/** Any value of a hyperparameter or a metric, as text. */
export function formatValue(/** @type {unknown} */ value) {
  if (value == null) return "";
  if (typeof value === "number") return formatNumber(value);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** Says how many are shown of all: "1,000 of 100,000". */
export const firstOf = (/** @type {number} */ shown, /** @type {number} */ all) =>
  `${shown.toLocaleString("en-US")} of ${all.toLocaleString("en-US")}`;

/** A size in bytes, in powers of 1024. */
export function formatSize(/** @type {number} */ bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) {
    bytes /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? bytes : bytes.toFixed(bytes < 10 ? 1 : 0)} ${units[unit]}`;
}

/** A stretch of time, in its two largest units. */
export function formatDuration(/** @type {number} */ seconds) {
  if (seconds < 60) return `${seconds < 10 ? Number(seconds.toFixed(1)) : Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Says how long ago a time was, roughly; the date for what is older than a week. */
export function formatAge(/** @type {number} */ time, now = Date.now() / 1000) {
  const seconds = Math.max(0, now - time);
  if (seconds < 60) return "just now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h ago`;
  if (seconds < 7 * 86400) return `${Math.floor(seconds / 86400)} d ago`;
  return formatTime(time).slice(0, 10);
}

/** A time as date and time of day, here. */
export function formatTime(/** @type {number} */ time) {
  const at = new Date(time * 1000);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60000).toISOString().slice(0, 19).replace("T", " ");
}

/** "1 trial" or "3 trials". */
export const counted = (/** @type {number} */ number, /** @type {string} */ noun) =>
  `${number.toLocaleString("en-US")} ${noun}${number === 1 ? "" : "s"}`;

/** Text within HTML or SVG, where it is shown as it is written. */
export const escaped = (/** @type {string} */ text) => text.replace(/[&<>"']/g, (found) => `&#${found.charCodeAt(0)};`);

const tidy = (/** @type {string} */ text) => text.replace(/\.?0+e/, "e").replace("e+", "e");

/** Who has written something, where the server knows people by name: the page of one's own home does not. @param {string} [author] */
export const byline = (author) => (author && author !== "core-sdk ui" ? `by ${author}` : "");
