/** A drawn figure that can be saved: a card around an SVG. */

import { html, useMemo, useRef } from "../../preact.js";
import { Menu } from "../../parts/menu.js";
import { saveFile } from "../../parts/saving.js";
import { colour, useThemeVersion } from "../../state/theme.js";
/** @import { ComponentChildren } from "preact" */

const RAMP = ["--ramp-0", "--ramp-1", "--ramp-2", "--ramp-3", "--ramp-4"];

/** The colours of the ramp in the theme of now. @returns {string[]} */
export function useRamp() {
  const version = useThemeVersion();
  return useMemo(() => RAMP.map(colour), [version]);
}

/** @param {{title: string, description: string, width: number, height: number, children: ComponentChildren, after?: ComponentChildren, csv?: () => string}} props */
export function Figure({ title, description, width, height, children, after = null, csv }) {
  const svg = useRef(/** @type {SVGSVGElement | null} */ (null));
  const drawn = () => standalone(/** @type {SVGSVGElement} */ (svg.current));
  const exports = [
    { label: "Save as SVG", onSelect: () => saveFile(`${title}.svg`, drawn(), "image/svg+xml") },
    { label: "Save as PNG", onSelect: () => savePng(title, drawn(), width, height) },
    ...(csv ? [{ label: "Save as CSV", onSelect: () => saveFile(`${title}.csv`, csv(), "text/csv") }] : []),
  ];
  return html`
    <figure class="chart">
      <figcaption class="chart-head"><span class="chart-title">${title}</span><${Menu} label=${`Export ${title}`} text="⋯" items=${exports} /></figcaption>
      <svg ref=${svg} class="drawing" role="img" aria-label=${description} viewBox=${`0 0 ${width} ${height}`} width=${width} height=${height}>${children}</svg>
      ${after}
    </figure>
  `;
}

/** The SVG with the colours that the style sheet gives it here, so that it looks the same elsewhere. */
function standalone(/** @type {SVGElement} */ svg) {
  const copy = /** @type {SVGElement} */ (svg.cloneNode(true));
  const originals = [svg, ...svg.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((element, index) => {
    const style = getComputedStyle(originals[index]);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-opacity", "font-size", "font-weight", "font-family", "text-anchor"]) {
      element.setAttribute(name, style.getPropertyValue(name));
    }
    element.removeAttribute("class");
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.insertAdjacentHTML("afterbegin", `<rect width="100%" height="100%" fill="${colour("--surface")}"/>`);
  return new XMLSerializer().serializeToString(copy);
}

function savePng(/** @type {string} */ title, /** @type {string} */ svg, /** @type {number} */ width, /** @type {number} */ height) {
  const picture = new Image();
  picture.onload = () => {
    const canvas = document.createElement("canvas");
    canvas.width = width * 2;
    canvas.height = height * 2;
    /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")).drawImage(picture, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => saveFile(`${title}.png`, /** @type {Blob} */ (blob)), "image/png");
  };
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
}
