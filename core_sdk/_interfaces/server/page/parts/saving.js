/** Files that the page makes: tables and pictures. */

/** Offers content as a download. @param {string} name @param {BlobPart | Blob} content @param {string} [type] */
export function saveFile(name, content, type = "application/octet-stream") {
  const blob = content instanceof Blob ? content : new Blob([content], { type });
  const url = URL.createObjectURL(blob);
  saveFrom(url, name.replace(/[^\p{L}\p{N}\p{M}_.() -]+/gu, "_"));
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Lets the browser save what is at an address. @param {string} url @param {string} [name] */
export function saveFrom(url, name = "") {
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
}

/** Rows as CSV. Text that a spreadsheet would run as a formula gets a quote before it. @param {unknown[][]} rows */
export const csvText = (rows) => rows.map((row) => row.map(csvField).join(",")).join("\r\n") + "\r\n";

/** @param {unknown} value @returns {string} */
function csvField(value) {
  if (value == null) return "";
  if (typeof value !== "string") return typeof value === "object" ? csvField(JSON.stringify(value)) : String(value);
  const harmless = /^[=+\-@\t\r]/.test(value) && Number.isNaN(Number(value)) ? `'${value}` : value;
  return /[",\r\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}
