/** The charts of a view, in sections: drawn where they are in view, and pinned, moved, enlarged, changed and hidden. */

import { html, useEffect, useMemo, useRef, useState } from "../../preact.js";
import { useChartSettings } from "../../charts/settings.js";
import { Choice } from "../../parts/choice.js";
import { withText } from "../../parts/field.js";
import { Empty, Loading, Remark } from "../../parts/states.js";
import { counted, firstOf } from "../../parts/text.js";
import { useSetting } from "../../state/place.js";
import { PanelDialog } from "./panel-dialog.js";
import {
  haveNamesakes,
  metricsOf,
  neighbour,
  newId,
  PINNED,
  readPanels,
  sectionsOf,
  standardPanel,
  withChange,
  withMove,
  writtenPanels,
} from "./panels.js";
/** @import { ComponentChildren } from "preact" */
/** @import { ChartSettings } from "../../charts/settings.js" */
/** @import { MenuItem } from "../../parts/menu.js" */
/** @import { Limits } from "../../charts/curves.js" */
/** @import { MetricNames } from "./metric-names.js" */
/** @import { Panel, Section } from "./panels.js" */

const NUM_CHARTS = 24;
const HEIGHT = 230;
const LARGE = 460;
const ORDERS = [
  ["group", "By group"],
  ["name", "By name"],
];
const DRAGGED = "application/x-core-sdk-panel";

/**
 * What a chart of a panel is given.
 * @typedef {Omit<ChartSettings, "axis"> & {axis: string, title: string, limits: Limits, caption: string, formula: string, height: number, actions: MenuItem[], handle: ComponentChildren}} Frame
 */
/** Draws the chart of some metrics in a frame. @typedef {(metrics: string[], frame: Frame) => ComponentChildren} Draw */

/** @returns {[Panel[], (panels: Panel[]) => void]} */
function usePanels() {
  const [text, setText] = useSetting("panels");
  const panels = useMemo(() => readPanels(text), [text]);
  return [panels, (next) => setText(writtenPanels(next))];
}

/** Whether charts are in groups, or each has the metrics of one name. */
const useOrder = () => useSetting("by", "group");

/** Chooses whether the metrics of one name share a chart. @param {{metrics: MetricNames}} props */
export function OrderChoice({ metrics: { names } }) {
  const [order, setOrder] = useOrder();
  return haveNamesakes(names) && html`<${Choice} label="Charts" values=${ORDERS} value=${order} onChange=${setOrder} />`;
}

/** Finds metrics. */
export function MetricSearch() {
  const [search, setSearch] = useSetting("metrics");
  return html`<input type="search" class="search" placeholder="Find metrics: loss|acc" title="A part of a name, or a regular expression" aria-label="Find a metric" value=${search} onInput=${withText(setSearch)} />`;
}

/** Adds charts, and shows hidden ones again. @param {{metrics: MetricNames}} props */
export function PanelTools({ metrics }) {
  const [panels, setPanels] = usePanels();
  const [isAdding, setIsAdding] = useState(false);
  const numHidden = panels.filter(({ off }) => off).length;
  const add = (/** @type {Panel} */ panel) => {
    setPanels(withChange(panels, panel.id, panel));
    setIsAdding(false);
  };
  return html`
    <button onClick=${() => setIsAdding(true)}>Add chart</button>
    ${numHidden > 0 && html`<button class="quiet" onClick=${() => setPanels(panels.map((panel) => ({ ...panel, off: false })))}>${counted(numHidden, "hidden chart")}, show</button>`}
    ${isAdding && html`<${PanelDialog} panel=${standardPanel(newId(panels))} metrics=${metrics} onSave=${add} onClose=${() => setIsAdding(false)} />`}
  `;
}

/** @param {{metrics: MetricNames, first?: string, draw: Draw}} props Of the metrics, `first` comes first. */
export function PanelGrid({ metrics, first = "", draw }) {
  const { names, numFound, isLoading } = metrics;
  const [panels] = usePanels();
  const [search] = useSetting("metrics");
  const [order] = useOrder();
  const sections = useMemo(() => sectionsOf(panels, names, search, first, order === "name"), [panels, names, search, first, order]);
  if (isLoading) return html`<${Loading} what="the names of metrics" />`;
  return html`
    ${numFound > names.length && html`<${Remark}>There are charts of the first ${firstOf(names.length, numFound)} metrics. The search looks through ${search ? "these" : "more"}.<//>`}
    ${sections.length === 0 && html`<${Empty} title=${names.length ? "No metric has such a name." : "No trial has reported a metric."} />`}
    ${sections.map((section) => html`<${PanelSection} key=${section.title} section=${section} metrics=${metrics} draw=${draw} />`)}
  `;
}

/** @param {{section: Section, metrics: MetricNames, draw: Draw}} props */
function PanelSection({ section: { title, panels }, metrics, draw }) {
  const [numShown, setNumShown] = useState(NUM_CHARTS);
  const numMore = Math.min(NUM_CHARTS, panels.length - numShown);
  return html`
    <section class="chart-section" aria-label=${title}>
      <h2>${title} <span class="soft">${panels.length}</span></h2>
      <div class="charts">
        ${panels.slice(0, numShown).map((panel) => html`<${Framed} key=${panel.id} panel=${panel} metrics=${metrics} isPinned=${title === PINNED} draw=${draw} />`)}
      </div>
      ${numMore > 0 && html`<button class="more" onClick=${() => setNumShown(numShown + numMore)}>Show ${counted(numMore, "more chart")}</button>`}
    </section>
  `;
}

/** @param {{panel: Panel, metrics: MetricNames, isPinned: boolean, draw: Draw}} props */
function Framed({ panel, metrics, isPinned, draw }) {
  const { id } = panel;
  const [panels, setPanels] = usePanels();
  const [isEditing, setIsEditing] = useState(false);
  const [ownZoom, setOwnZoom] = useState(/** @type {ChartSettings["zoom"]} */ (null));
  const settings = useChartSettings();
  const [box, isInView] = useIsInView();
  const names = metricsOf(panel, metrics.names);
  const title = panel.title || panel.formula || (panel.re ? `/${panel.re}/` : names.join(", "));
  const change = (/** @type {Partial<Panel>} */ next) => setPanels(withChange(panels, id, next));
  const step = (/** @type {number} */ by) => setPanels(withMove(panels, id, neighbour(panels, id, by) ?? id));
  const isAdded = id.startsWith("+");
  /** @type {MenuItem[]} */
  const actions = [
    { label: "Settings …", onSelect: () => setIsEditing(true) },
    ...(isAdded ? [] : [{ label: isPinned ? "Unpin" : "Pin", onSelect: () => change({ pin: !isPinned }) }]),
    { label: panel.big ? "Make smaller" : "Enlarge", onSelect: () => change({ big: !panel.big }) },
    ...(isPinned ? [-1, 1].map((by) => ({ label: by < 0 ? "Move to the left" : "Move to the right", onSelect: () => step(by) })) : []),
    isAdded
      ? { label: "Remove", onSelect: () => setPanels(panels.filter((one) => one.id !== id)) }
      : { label: "Hide", onSelect: () => change({ off: true }) },
  ];
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    event.preventDefault();
    const handle = /** @type {HTMLElement} */ (event.currentTarget);
    step(event.key === "ArrowLeft" ? -1 : 1);
    // An element that is moved in the document loses the focus.
    setTimeout(() => handle.focus());
  };
  const drag = (/** @type {DragEvent} */ event) => event.dataTransfer?.setData(DRAGGED, id);
  const handle = html`
    <button class="quiet handle" draggable="true" aria-label=${`Move ${title}`} title="Drag, or use the arrow keys" onDragStart=${drag} onKeyDown=${onKeyDown}>⠿</button>
  `;
  const isOnOwnAxis = panel.x !== "" && panel.x !== settings.axis;
  const frame = {
    ...settings,
    title,
    axis: panel.x || settings.axis,
    isLogX: panel.logx ? panel.logx === "1" : settings.isLogX,
    isLogarithmic: panel.log ? panel.log === "1" : settings.isLogarithmic,
    limits: panel.y,
    caption: panel.note,
    formula: panel.formula,
    height: panel.big ? LARGE : HEIGHT,
    actions,
    handle,
    ...(isOnOwnAxis ? { zoom: ownZoom, onZoom: setOwnZoom } : {}),
  };
  return html`
    <div
      class=${`panel ${panel.big ? "big" : ""}`}
      ref=${box}
      style=${{ minHeight: `${frame.height + 62}px` }}
      onDragOver=${(/** @type {DragEvent} */ event) => isPinned && event.dataTransfer?.types.includes(DRAGGED) && event.preventDefault()}
      onDrop=${(/** @type {DragEvent} */ event) => {
        event.preventDefault();
        setPanels(withMove(panels, event.dataTransfer?.getData(DRAGGED) ?? id, id));
      }}
    >
      ${isInView && draw(names, frame)}
      ${
        isEditing &&
        html`<${PanelDialog}
          panel=${panel}
          metrics=${metrics}
          onSave=${(/** @type {Panel} */ next) => {
            change(next);
            setIsEditing(false);
          }}
          onClose=${() => setIsEditing(false)}
        />`
      }
    </div>
  `;
}

/** A reference to an element, and whether it is in view, or nearly. @returns {[{current: HTMLElement | null}, boolean]} */
function useIsInView() {
  const element = useRef(/** @type {HTMLElement | null} */ (null));
  const [isInView, setIsInView] = useState(false);
  useEffect(() => {
    const observer = new IntersectionObserver((entries) => setIsInView(entries[entries.length - 1].isIntersecting), { rootMargin: "200px" });
    observer.observe(/** @type {HTMLElement} */ (element.current));
    return () => observer.disconnect();
  }, []);
  return [element, isInView];
}
