/** Which of very many rows of one height are in view, so that only those are drawn. */

import { useCallback, useEffect, useRef, useState } from "../preact.js";

// Browsers place nothing correctly below some 16 to 33 million pixels: beyond this the scroll bar is finer than a row.
const MAX_HEIGHT = 12_000_000;
const NUM_SPARE = 12;

/**
 * @param {number} numRows
 * @param {number} rowHeight In pixels.
 * @returns {{box: { current: HTMLDivElement | null }, first: number, last: number, height: number, top: number, onScroll: () => void, show: (index: number, where?: "nearest" | "center") => void, isAtEnd: () => boolean}}
 * `first` to `last` (exclusive) are to be drawn at `top` within an element of `height`.
 */
export function useRowsInView(numRows, rowHeight) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [view, setView] = useState({ scrolled: 0, height: 800 });
  // It is there whenever something is scrolled or measured.
  const element = () => /** @type {HTMLDivElement} */ (box.current);
  const whole = numRows * rowHeight;
  const height = Math.min(whole, MAX_HEIGHT);
  const range = Math.max(1, height - view.height);
  const scale = whole > height ? (whole - view.height) / range : 1;

  const onScroll = useCallback(() => {
    const { scrollTop, clientHeight } = element();
    setView((last) => (last.scrolled === scrollTop && last.height === clientHeight ? last : { scrolled: scrollTop, height: clientHeight }));
  }, []);
  useEffect(() => {
    const observer = new ResizeObserver(onScroll);
    observer.observe(element());
    return () => observer.disconnect();
  }, []);

  const start = view.scrolled * scale;
  const first = Math.max(0, Math.floor(start / rowHeight) - NUM_SPARE);
  const last = Math.min(numRows, Math.ceil((start + view.height) / rowHeight) + NUM_SPARE);
  const top = view.scrolled + first * rowHeight - start;

  const show = (/** @type {number} */ index, where = "nearest") => {
    const { scrollTop, clientHeight } = element();
    const begin = scrollTop * scale;
    const target =
      where === "center"
        ? index * rowHeight - clientHeight / 2
        : index * rowHeight < begin
          ? index * rowHeight
          : (index + 1) * rowHeight > begin + clientHeight
            ? (index + 1) * rowHeight - clientHeight
            : begin;
    element().scrollTop = target / scale;
    onScroll();
  };
  const isAtEnd = () => {
    const { scrollTop, clientHeight, scrollHeight } = element();
    return scrollHeight - scrollTop - clientHeight < rowHeight;
  };
  return { box, first, last, height, top: Math.max(0, top), onScroll, show, isAtEnd };
}
