/** Charts next to the list of trials: which trials have curves, how these look, and the charts themselves. */

import { html, useMemo } from "../../preact.js";
import { LineSample } from "../../charts/palette.js";
import { useIsHighlighted } from "../../charts/highlight.js";
import { useRamp } from "../../charts/search/figure.js";
import { ChartTools } from "../../charts/settings.js";
import { Select } from "../../parts/choice.js";
import { Empty, Remark } from "../../parts/states.js";
import { address } from "../../state/api.js";
import { once, useAnswer } from "../../state/answers.js";
import { styleColour } from "../../state/theme.js";
import { useListSetting, useSetting } from "../../state/place.js";
import { GroupFields, useGroupNames } from "../groups/choice.js";
import { RankChoice } from "../rank-choice.js";
import { ALWAYS_READ } from "../runs/columns.js";
import { runsOf } from "../runs/trials.js";
import { BaselineChoice } from "./baseline.js";
import { isSeen, withEyes } from "./eyes.js";
import { useFacet } from "./facets.js";
import { MetricSearch, OrderChoice, PanelGrid, PanelTools } from "./panel-grid.js";
import { GroupsChart, TrialsChart } from "./subject-charts.js";
import { colourOfGroups, looksOf, slotsOfGroups, slotsOfTrials, trialSubjects } from "./subjects.js";
/** @import { ColumnsAnswer } from "api" */
/** @import { Run, RunGroup } from "../runs/grouping.js" */
/** @import { Question } from "../runs/trials.js" */
/** @import { MetricNames } from "./metric-names.js" */
/** @import { Frame } from "./panel-grid.js" */
/** @import { Legend, Look, Subject } from "./subjects.js" */

const MAX_GROUPED = 1000;
const MAX_SHOWN = 100;
const MAX_NAMES = 24;
const TOPS = ["1", "5", "10", "20", "30", "50", "100"];

/**
 * @typedef {object} Workspace
 * @property {Subject[]} subjects What has curves.
 * @property {Map<string, Look>} looks
 * @property {Legend | null} legend What the colours mean, if they tell something.
 * @property {number} numLeftOut Trials that have an eye and no curve, since there are too many.
 * @property {(id: string) => boolean} isShown Whether a trial has a curve.
 * @property {(ids: string[], isShown: boolean) => void} show
 * @property {(isShown: boolean) => void} showAll
 */

/**
 * The trials of the list that have curves.
 * @param {Question | null} question The question of the list; null without charts.
 * @param {ColumnsAnswer | undefined} columns
 * @param {(Run | RunGroup)[] | null} groups The rows of the list, if they are grouped.
 * @returns {Workspace}
 */
export function useWorkspace(question, columns, groups) {
  const [eyes, setEyes] = useListSetting("eyes");
  const [top] = useSetting("top", "30");
  const [by] = useSetting("colour");
  const [scale] = useSetting("scale");
  const [facet] = useFacet();
  const [groupNames] = useGroupNames();
  const ramp = useRamp();
  const isGrouped = groupNames.length > 0;
  const named = hyperparameters(columns).slice(0, MAX_NAMES);
  const fields = (columns?.columns ?? []).filter(({ kind }) => kind === "field").map(({ name }) => name);
  const wanted = new Set([...ALWAYS_READ, "started", "steps", "name", ...named, by, facet]);
  const known = (columns?.columns ?? []).map(({ name }) => name);
  const asked = question && {
    ...question,
    archived: question.archived || null,
    columns: [...wanted].filter((name) => known.includes(name) || fields.includes(name)),
  };
  const about = `curves ${JSON.stringify([question?.experiment, question?.trials])}`;
  const added = eyes.filter((one) => /^\d+$/.test(one)).map(Number);
  const follows = (/** @type {{trials: number[]}} */ { trials }) => trials.length > 0;
  const firstAnswer = useAnswer(asked && !isGrouped ? address(["runs"], { ...asked, limit: Number(top) || 30 }) : null, { about, follows });
  const addedAnswer = useAnswer(
    asked && !isGrouped && added.length > 0 ? address(["runs"], { trials: added, columns: asked.columns, limit: MAX_SHOWN }) : null,
    { about, follows },
  );
  const firstIds = useMemo(() => new Set((firstAnswer.value?.ids ?? []).map(String)), [firstAnswer.value]);
  const isFirst = (/** @type {string} */ id) => isGrouped || firstIds.has(id);
  const isShown = (/** @type {string} */ id) => isSeen(eyes, id, isFirst(id));
  const [subjects, numLeftOut] = useMemo(() => {
    if (isGrouped) return groupSubjects(groups ?? [], isShown);
    const runs = [firstAnswer.value, addedAnswer.value].flatMap((answer) => (answer ? runsOf(answer) : []));
    const shown = [...new Map(runs.map((run) => [run.key, run])).values()].filter(({ key }) => isShown(key));
    return /** @type {[Subject[], number]} */ ([trialSubjects(shown.slice(0, MAX_SHOWN), named), Math.max(0, shown.length - MAX_SHOWN)]);
  }, [firstAnswer.value, addedAnswer.value, groups, eyes.join(), isGrouped, named.join("\n")]);
  const { looks, legend } = useMemo(() => {
    const slots = isGrouped
      ? slotsOfGroups((groups ?? []).flatMap((item) => ("ids" in item ? [item.key] : [])))
      : slotsOfTrials(subjects.map(({ ids }) => ids[0]));
    const isLogarithmic = scale === "" ? null : scale === "log";
    return looksOf(subjects, slots, { by: isGrouped ? colourOfGroups(subjects, groupNames, by) : by, isGrouped, isLogarithmic, ramp });
  }, [subjects, groups, by, scale, ramp]);
  return {
    subjects,
    looks,
    legend,
    numLeftOut,
    isShown,
    show: (ids, isOpen) => setEyes(withEyes(eyes, ids, isOpen, isFirst)),
    showAll: (isOpen) => setEyes(isOpen ? [] : ["none"]),
  };
}

/** The hyperparameters that differ between trials, those that most trials have first. @param {ColumnsAnswer | undefined} columns */
const hyperparameters = (columns) =>
  (columns?.columns ?? [])
    .filter(({ kind, is_constant: isConstant }) => kind === "hyperparameter" && !isConstant)
    .sort((one, other) => other.num_trials - one.num_trials)
    .map(({ name }) => name);

/** @param {(Run | RunGroup)[]} items @param {(id: string) => boolean} isShown @returns {[Subject[], number]} */
function groupSubjects(items, isShown) {
  const groups = items
    .flatMap((item) => ("ids" in item ? [item] : []))
    .map(({ key, group, ids, values }) => ({ key, name: group, label: group, ids: ids.filter((id) => isShown(String(id))), values }))
    .filter(({ ids }) => ids.length > 0);
  let room = MAX_GROUPED;
  const bounded = groups.map((group) => {
    const ids = group.ids.slice(0, room);
    room -= ids.length;
    return { ...group, ids };
  });
  const num = groups.reduce((sum, { ids }) => sum + ids.length, 0);
  return [bounded.filter(({ ids }) => ids.length > 0), Math.max(0, num - MAX_GROUPED)];
}

/**
 * The eye of a trial, or of a group of them: shows and hides its curve.
 * @param {{workspace: Workspace, ids: string[], subject: string, name: string}} props
 */
export function Eye({ workspace, ids, subject, name }) {
  const isMarked = useIsHighlighted(subject);
  const look = workspace.looks.get(subject);
  const isShown = ids.some(workspace.isShown);
  return html`
    <span class=${`eye ${isMarked ? "marked" : ""}`}>
      <${EyeButton} label=${`Curve of ${name}`} isOpen=${isShown} onClick=${() => workspace.show(ids, !isShown)} />
      ${look && html`<${LineSample} ...${look} />`}
    </span>
  `;
}

/** @param {{label: string, isOpen: boolean, onClick: () => void, isInHead?: boolean}} props */
export const EyeButton = ({ label, isOpen, onClick, isInHead = false }) => html`
  <button class="quiet eye-button" tabindex=${isInHead ? 0 : -1} aria-label=${label} title=${label} aria-pressed=${isOpen} onClick=${onClick}>
    <svg viewBox="0 0 16 16" width="15" height="15" aria-hidden="true">
      <path d="M1 8q7-8.5 14 0q-7 8.5-14 0z" /><circle cx="8" cy="8" r="2" />${!isOpen && html`<path d="M2 14L14 2" />`}
    </svg>
  </button>
`;

/** The tools of the charts, for the toolbar of the list. @param {{workspace: Workspace, columns: ColumnsAnswer, metrics: MetricNames}} props */
export function WorkspaceTools({ workspace: { subjects }, columns, metrics }) {
  const [top, setTop] = useSetting("top", "30");
  const [by, setBy] = useSetting("colour");
  const [facet, setFacet] = useFacet();
  const [groupNames] = useGroupNames();
  const isGrouped = groupNames.length > 0;
  const ids = subjects.flatMap((subject) => subject.ids).slice(0, MAX_SHOWN);
  const compared = useAnswer(ids.length ? address(["comparison"], { trials: ids, limit: 1 }) : null, { ...once, about: "ranks" });
  const ranks = (compared.value?.trials ?? []).map(({ reporting_ranks: of }) => of).filter((of) => of.length > 1);
  const colours = isGrouped ? groupNames : ["state", "experiment", ...hyperparameters(columns)];
  return html`
    <${ChartTools} isShared=${true} hasSoFar=${!isGrouped} search=${html`<${MetricSearch} />`} tools=${html`<${PanelTools} metrics=${metrics} />`}>
      <${Select} label="Colour" values=${[
        ...(isGrouped
          ? [
              ["", "automatic"],
              ["group", "group"],
            ]
          : [["", "trial"]]),
        ...colours.map((name) => [name, name]),
      ]} value=${by} onChange=${setBy} />
      <${Select} label="Split by" values=${[["", "nothing"], ...[...(isGrouped ? [] : ["label"]), ...colours].map((name) => [name, name])]} value=${facet} onChange=${setFacet} />
      ${!isGrouped && html`<${Select} label="Curves" values=${TOPS.map((number) => [number, `first ${number}`])} value=${top} onChange=${setTop} />`}
      <${RankChoice} ranks=${[...new Set(ranks.flat())].sort((one, other) => String(one).localeCompare(String(other), undefined, { numeric: true }))} hasAll=${!isGrouped} />
      <${GroupFields} metrics=${metrics.choices} bestBy=${columns.best_by ?? null} />
      <${BaselineChoice} />
      <${OrderChoice} metrics=${metrics} />
    <//>
  `;
}

/**
 * @param {object} props
 * @param {Workspace} props.workspace
 * @param {MetricNames} props.metrics
 * @param {string} props.ranking min.METRIC or max.METRIC, whose chart comes first; or empty.
 */
export function WorkspaceCharts({ workspace: { subjects, looks, legend, numLeftOut }, metrics, ranking }) {
  const isGrouped = useGroupNames()[0].length > 0;
  const draw = (/** @type {string[]} */ names, /** @type {Frame} */ frame) => html`
    <${isGrouped ? GroupsChart : TrialsChart} subjects=${subjects} looks=${looks} metrics=${names} frame=${frame} />
  `;
  return html`
    <div class="pane workspace-charts" tabindex="0" role="region" aria-label="Charts">
      ${legend && html`<${ColourLegend} legend=${legend} />`}
      ${numLeftOut > 0 && html`<${Remark}>${numLeftOut} more trials have no curve: too many are chosen.<//>`}
      ${
        subjects.length === 0
          ? html`<${Empty} title="No trial is shown.">Open the eye of a trial in the list.<//>`
          : html`<${PanelGrid} metrics=${metrics} first=${ranking.slice(4)} draw=${draw} />`
      }
    </div>
  `;
}

/** @param {{legend: Legend}} props */
function ColourLegend({ legend: { name, ticks, values } }) {
  const [scale, setScale] = useSetting("scale");
  const scales = [
    ["", "automatic"],
    ["linear", "linear"],
    ["log", "logarithmic"],
  ];
  return html`
    <div class="legend" role="group" aria-label="Colours">
      <b>${name}</b>
      ${values.map(({ text, colour }) => html`<span class="legend-value"><i class="swatch" style=${{ background: styleColour(colour) }}></i>${text}</span>`)}
      ${
        ticks.length > 0 &&
        html`
        <span class="ramp"><i></i><span>${ticks.map(({ place, text }) => html`<span style=${{ left: `${100 * place}%` }}>${text}</span>`)}</span></span>
        <${Select} label="Scale" values=${scales} value=${scale} onChange=${setScale} />
      `
      }
    </div>
  `;
}
