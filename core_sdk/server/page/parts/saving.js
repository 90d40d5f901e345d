/** Files that the page makes: tables and pictures. */

/** Offers content as a download. @param {string} name @param {BlobPart | Blob} content @param {string} [type] */
export function saveFile(name, content, type = "application/octet-stream") {
  const blob = content instanceof Blob ? content : new Blob([content], { type });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name.replace(/[^\w.() -]+/g, "_");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Rows as CSV. Text that a spreadsheet would run as a formula gets a quote before it. @param {any[][]} rows */
export const csvText = (rows) => rows.map((row) => row.map(csvField).join(",")).join("\r\n") + "\r\n";

function csvField(/** @type {any} */ value) {
  if (value == null) return "";
  if (typeof value !== "string") return typeof value === "object" ? csvField(JSON.stringify(value)) : String(value);
  const harmless = /^[=+\-@\t\r]/.test(value) && Number.isNaN(Number(value)) ? `'${value}` : value;
  return /[",\r\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}
