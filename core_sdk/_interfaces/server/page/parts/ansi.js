/** Lines of output with the colours that a terminal would show. */

import { html } from "../preact.js";

/** @typedef {{text: string, style: string}} Piece */
/** @typedef {{colour: string, isBold: boolean, isDim: boolean, isUnderlined: boolean}} Style */

const ESCAPE = /\u001b\[([0-9;]*)m|\u001b\[[0-?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)|\u001b[@-Z\\-_]/g;

/** The pieces of a line, each with the classes of its colours. What else a terminal obeys is left out. @returns {Piece[]} */
export function piecesOf(/** @type {string} */ line) {
  /** @type {Piece[]} */
  const pieces = [];
  const style = { colour: "", isBold: false, isDim: false, isUnderlined: false };
  let end = 0;
  const add = (/** @type {string} */ text) => {
    if (text) pieces.push({ text, style: classes(style) });
  };
  for (const found of line.matchAll(ESCAPE)) {
    add(line.slice(end, found.index));
    end = found.index + found[0].length;
    if (found[1] !== undefined) obey(style, found[1].split(";").map(Number));
  }
  add(line.slice(end));
  return pieces;
}

/** A line with its colours. @param {{line: string}} props */
export const Coloured = ({ line }) =>
  line.includes("\u001b") ? piecesOf(line).map(({ text, style }) => (style ? html`<span class=${style}>${text}</span>` : text)) : line;

function obey(/** @type {Style} */ style, /** @type {number[]} */ codes) {
  for (let index = 0; index < codes.length; index += 1) {
    const code = codes[index];
    if (code === 0) Object.assign(style, { colour: "", isBold: false, isDim: false, isUnderlined: false });
    else if (code === 1) style.isBold = true;
    else if (code === 2) style.isDim = true;
    else if (code === 4) style.isUnderlined = true;
    else if (code === 22) Object.assign(style, { isBold: false, isDim: false });
    else if (code === 24) style.isUnderlined = false;
    else if (code === 39) style.colour = "";
    else if (code >= 30 && code <= 37) style.colour = `ansi-${code - 30}`;
    else if (code >= 90 && code <= 97) style.colour = `ansi-${code - 90}`;
    else if (code === 38 || code === 48) index += codes[index + 1] === 5 ? 2 : 4; // Other palettes are shown without colour.
  }
}

const classes = (/** @type {Style} */ { colour, isBold, isDim, isUnderlined }) =>
  [colour, isBold && "ansi-bold", isDim && "ansi-dim", isUnderlined && "ansi-underlined"].filter(Boolean).join(" ");
