/** A table of very many rows: sorted by its heads, steered by keys, with rows to choose and groups to fold. */

import { html, useEffect, useState } from "../preact.js";
import { useRowsInView } from "./rows-in-view.js";
/** @import { ComponentChildren } from "preact" */

const ROW_HEIGHT = 30;

/**
 * @template Row
 * @typedef {object} Column
 * @property {string} name
 * @property {string} title
 * @property {ComponentChildren} [head] What its head shows instead of the title.
 * @property {number} width In pixels.
 * @property {boolean} [isNumber]
 * @property {boolean} [isFixed] It cannot be sorted by.
 * @property {(row: Row) => ComponentChildren} show
 */

/** @typedef {{group: string, key: string, count: number, isOpen: boolean}} GroupItem The head of the rows of one group. */

/**
 * @template {object} Row
 * @template {GroupItem} [Group=GroupItem]
 * @param {object} props
 * @param {string} props.label
 * @param {boolean} [props.isOutdated] Whether the rows answer a former question, until the rows of the new one are there.
 * @param {number} props.numItems
 * @param {(index: number) => Row | Group | undefined} props.itemAt A row or the head of a group; undefined for a row that is being read.
 * @param {(first: number, last: number) => void} [props.onView] Which items are in view.
 * @param {Column<Row>[]} props.columns
 * @param {(row: Row) => string} props.keyOf
 * @param {string} props.sort A column's name, with "-" before it if descending; or empty.
 * @param {(sort: string) => void} props.onSort
 * @param {Map<string, Row>} props.chosen Rows by their keys.
 * @param {(chosen: Map<string, Row>) => void} props.onChoose
 * @param {() => void} props.onChooseAll
 * @param {(row: Row) => string} props.linkOf
 * @param {(key: string) => void} [props.onFold]
 * @param {(group: Group) => ComponentChildren} [props.showGroup] What the head of a group says besides its name.
 * @param {(group: Group, name: string) => ComponentChildren} [props.showGroupCell] What it says in a column; null for nothing.
 * @param {string[]} [props.groupColumns] The columns in which heads of groups say something.
 * @param {(key: string, item: Row | Group | undefined) => boolean} [props.onKey] What else a key does at an item; true if it did something.
 * @param {(item: Row | Group | null) => void} [props.onPoint] At which item the pointer is.
 */
export function Grid({
  label,
  isOutdated = false,
  numItems,
  itemAt,
  onView,
  columns,
  keyOf,
  sort,
  onSort,
  chosen,
  onChoose,
  onChooseAll,
  linkOf,
  onFold,
  showGroup,
  showGroupCell,
  groupColumns = [],
  onKey,
  onPoint,
}) {
  const { box, first, last, height, top, onScroll, show } = useRowsInView(numItems, ROW_HEIGHT);
  const [active, setActive] = useState(0);
  const [anchor, setAnchor] = useState(0);
  useEffect(() => setActive((index) => Math.min(index, Math.max(0, numItems - 1))), [numItems]);
  useEffect(() => onView?.(first, last), [onView, first, last]);

  const moveTo = (/** @type {number} */ index, /** @type {boolean} */ isExtending) => {
    const next = Math.max(0, Math.min(numItems - 1, index));
    setActive(next);
    show(next);
    if (isExtending) chooseRange(anchor, next);
    else setAnchor(next);
  };
  const chooseRange = (/** @type {number} */ from, /** @type {number} */ to) => {
    const next = new Map(chosen);
    for (let index = Math.min(from, to); index <= Math.max(from, to); index += 1) {
      const item = itemAt(index);
      if (item && !isGroup(item)) next.set(keyOf(item), item);
    }
    onChoose(next);
  };
  const toggle = (/** @type {number} */ index) => {
    const item = itemAt(index);
    if (item === undefined) return;
    if (isGroup(item)) return onFold?.(item.key);
    const next = new Map(chosen);
    if (!next.delete(keyOf(item))) next.set(keyOf(item), item);
    onChoose(next);
  };
  const open = (/** @type {number} */ index) => {
    const item = itemAt(index);
    if (item && isGroup(item)) onFold?.(item.key);
    else if (item) location.hash = linkOf(item);
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    const page = Math.max(1, Math.floor((box.current?.clientHeight ?? 0) / ROW_HEIGHT) - 2);
    /** @type {Record<string, () => void>} */
    const actions = {
      ArrowDown: () => moveTo(active + 1, event.shiftKey),
      ArrowUp: () => moveTo(active - 1, event.shiftKey),
      PageDown: () => moveTo(active + page, event.shiftKey),
      PageUp: () => moveTo(active - page, event.shiftKey),
      Home: () => moveTo(0, event.shiftKey),
      End: () => moveTo(numItems - 1, event.shiftKey),
      Enter: () => open(active),
      " ": () => toggle(active),
      Escape: () => onChoose(new Map()),
    };
    if (event.target !== box.current || event.altKey) return;
    if (event.ctrlKey || event.metaKey) {
      if (event.key !== "a") return;
      onChooseAll();
    } else if (event.key in actions) actions[event.key]();
    else if (!onKey?.(event.key, itemAt(active))) return;
    event.preventDefault();
  };
  // Keys steer the table also after a click on what only the pointer reaches, such as a row's box.
  const keepFocus = (/** @type {MouseEvent} */ event) => {
    if (/** @type {HTMLElement} */ (event.target).closest("input, button")?.getAttribute("tabindex") === "-1")
      box.current?.focus({ preventScroll: true });
  };
  const onRowClick = (/** @type {MouseEvent} */ event, /** @type {number} */ index) => {
    setActive(index);
    if (/** @type {HTMLElement} */ (event.target).closest("a, input, button")) return;
    const item = itemAt(index);
    if (item && isGroup(item)) return toggle(index);
    if (event.shiftKey) {
      event.preventDefault();
      chooseRange(anchor, index);
      return;
    }
    setAnchor(index);
    if (event.ctrlKey || event.metaKey) toggle(index);
  };

  const template = `34px ${columns.map(({ width }) => `minmax(${width}px, ${width}fr)`).join(" ")}`;
  const minWidth = 34 + columns.reduce((sum, { width }) => sum + width, 0);
  // The name of a group lies over all columns to the left of the first one in which heads say something.
  const firstOfGroups = columns.findIndex(({ name }) => groupColumns.includes(name));
  const nameSpan = (firstOfGroups < 1 ? columns.length : firstOfGroups) + 1;
  const rowId = (/** @type {number} */ index) => `row-${index}`;
  return html`
    <div
      class="grid"
      role=${onFold ? "treegrid" : "grid"}
      aria-label=${label}
      aria-busy=${isOutdated}
      aria-rowcount=${numItems + 1}
      aria-multiselectable="true"
      aria-activedescendant=${numItems ? rowId(active) : undefined}
      tabindex="0"
      ref=${box}
      onScroll=${onScroll}
      onKeyDown=${onKeyDown}
      onClick=${keepFocus}
    >
      <div class="grid-head" role="row" aria-rowindex="1" style=${{ gridTemplateColumns: template, minWidth: `${minWidth}px` }}>
        <span role="columnheader">
          <input
            type="checkbox"
            aria-label="Choose all"
            tabindex="-1"
            checked=${chosen.size > 0}
            indeterminate=${chosen.size > 0 && chosen.size < numItems}
            onChange=${() => (chosen.size > 0 ? onChoose(new Map()) : onChooseAll())}
          />
        </span>
        ${columns.map((column) => html`<${Head} key=${column.name} column=${column} sort=${sort} onSort=${onSort} />`)}
      </div>
      <div class="grid-space" role="rowgroup" style=${{ height: `${height}px`, minWidth: `${minWidth}px` }}>
        <div class="grid-rows" role="presentation" style=${{ transform: `translateY(${top}px)` }}>
          ${Array.from({ length: last - first }, (_, offset) => {
            const index = first + offset;
            const item = itemAt(index);
            const common = {
              id: rowId(index),
              role: "row",
              "aria-rowindex": index + 2,
              onClick: (/** @type {MouseEvent} */ event) => onRowClick(event, index),
              ...(onPoint && { onPointerEnter: () => onPoint(item ?? null), onPointerLeave: () => onPoint(null) }),
            };
            if (item === undefined)
              return html`<div key=${`waiting ${index}`} ...${common} class="grid-row waiting"><span role="gridcell"></span></div>`;
            if (isGroup(item)) {
              return html`
                <div key=${`group ${item.key}`} ...${common} class=${`grid-row grid-group ${index === active ? "active" : ""}`} aria-expanded=${item.isOpen} style=${{ gridTemplateColumns: template }}>
                  <span role="gridcell" class="group-cell" aria-colspan=${nameSpan} style=${{ gridColumn: `span ${nameSpan}` }}>
                    <i aria-hidden="true">${item.isOpen ? "▾" : "▸"}</i><b title=${item.group}>${item.group || "none"}</b>
                    <span class="soft">${item.count.toLocaleString("en-US")}</span>
                    ${showGroup?.(item)}
                  </span>
                  ${columns.slice(nameSpan - 1).map(({ name }) => html`<span key=${name} role="gridcell" class="number">${showGroupCell?.(item, name)}</span>`)}
                </div>
              `;
            }
            const key = keyOf(item);
            const isChosen = chosen.has(key);
            return html`
              <div
                key=${key}
                ...${common}
                class=${`grid-row ${isChosen ? "chosen" : ""} ${index === active ? "active" : ""}`}
                aria-selected=${isChosen}
                style=${{ gridTemplateColumns: template }}
                onDblClick=${() => open(index)}
              >
                <span role="gridcell">
                  <input type="checkbox" tabindex="-1" aria-label=${`Choose ${key}`} checked=${isChosen} onChange=${() => toggle(index)} />
                </span>
                ${columns.map(
                  ({ name, isNumber, show: showCell }) =>
                    html`<span key=${name} role="gridcell" class=${isNumber ? "number" : ""}>${showCell(item)}</span>`,
                )}
              </div>
            `;
          })}
        </div>
      </div>
    </div>
  `;
}

/**
 * @template {object} Row
 * @template {GroupItem} Group
 * @param {Row | Group} item
 * @returns {item is Group}
 */
const isGroup = (item) => "isOpen" in item;

/**
 * The head of a column, which sorts by it: first one way, then the other, then not at all.
 * @param {{column: Column<unknown>, sort: string, onSort: (sort: string) => void}} props
 */
function Head({ column: { name, title, head = title, isNumber, isFixed }, sort, onSort }) {
  const direction = sort === name ? "ascending" : sort === `-${name}` ? "descending" : "none";
  const next = { none: name, ascending: `-${name}`, descending: "" }[direction];
  return html`
    <span role="columnheader" class=${isNumber ? "number" : ""} aria-sort=${isFixed ? undefined : direction}>
      ${
        isFixed
          ? head
          : html`
            <button class="grid-sort" title=${title} onClick=${() => onSort(next)}>
              <span>${title}</span><i aria-hidden="true">${{ ascending: "↑", descending: "↓", none: "" }[direction]}</i>
            </button>
          `
      }
    </span>
  `;
}
