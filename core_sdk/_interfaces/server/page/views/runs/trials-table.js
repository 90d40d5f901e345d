/** The table of trials, and charts next to it. */

import { html, useMemo, useState } from "../../preact.js";
import { highlight } from "../../charts/highlight.js";
import { Choice } from "../../parts/choice.js";
import { Grid } from "../../parts/grid.js";
import { Menu } from "../../parts/menu.js";
import { csvText, saveFile } from "../../parts/saving.js";
import { Empty, Failure, Loading } from "../../parts/states.js";
import { own } from "../../parts/own.js";
import { counted, formatNumber } from "../../parts/text.js";
import { sayFailure } from "../../parts/toast.js";
import { address } from "../../state/api.js";
import { useAnswer } from "../../state/answers.js";
import { changeSettings, currentPlace, go, linkTo, useListSetting, useSetting } from "../../state/place.js";
import { ColumnChooser } from "./column-chooser.js";
import { GroupChoice, useGroupNames, useGroupSettings } from "../groups/choice.js";
import { allColumns, metricColumns, standardColumns } from "./columns.js";
import { Filter } from "./filter.js";
import { Folded, useIsNarrow } from "../../parts/folded.js";
import { KindChoice } from "./kind-choice.js";
import { grouped } from "./grouping.js";
import { SavedViews } from "./saved-views.js";
import { SelectionBar } from "./selection.js";
import { useTrials } from "./trials.js";
import { useMetricNames } from "../workspace/metric-names.js";
import { Eye, EyeButton, useWorkspace, WorkspaceCharts, WorkspaceTools } from "../workspace/workspace.js";
import { withText } from "../../parts/field.js";
/** @import { Column } from "../../parts/grid.js" */
/** @import { Run, RunGroup } from "./grouping.js" */

/** Where the table is not part of a workspace, a setting says whether charts are next to it. @type {[string, string][]} */
const VIEWS = [
  ["table", "Table"],
  ["charts", "Charts"],
];

/** Pages that are at most so wide have no room for groups and saved views next to the tools of charts. */
const CROWDED = 1280;

/**
 * The table of trials: of all, of one experiment, or of some that were chosen.
 * @param {{experiment?: number, trials?: number[], isWorkspace?: boolean}} props With charts next to it in a workspace.
 */
export function Trials({ experiment, trials: members, isWorkspace = false }) {
  const [view, setView] = useSetting("view", "table");
  const isNarrow = useIsNarrow();
  const isCrowded = useIsNarrow(CROWDED);
  const hasCharts = isWorkspace || view === "charts";
  const [where, setWhere] = useSetting("where");
  const [search, setSearch] = useSetting("search");
  const [chosenSort, setSort] = useSetting("sort");
  const [groupNames] = useGroupNames();
  const isGrouped = groupNames.length > 0;
  const [archived, setArchived] = useSetting("archived");
  const [hidden, setHidden] = useListSetting("hide");
  const [wanted, setWanted] = useListSetting("columns");
  const [chosen, setChosen] = useState(/** @type {Map<string, Run>} */ (new Map()));
  const [folded, setFolded] = useState(/** @type {Set<string>} */ (new Set()));
  const [isChoosingColumns, setIsChoosingColumns] = useState(false);

  const condition = withHidden(where, hidden);
  const described = { experiment, trials: members, where: condition, containing: search, archived: archived !== "" };
  const columnsAnswer = useAnswer(address(["columns"], { ...described, names: wanted }), {
    follows: ({ trials }) => trials.length > 0,
    about: `columns ${JSON.stringify([experiment, members])}`,
  });
  const known = columnsAnswer.value?.columns;
  const all = useMemo(() => allColumns(known ?? []), [known]);
  const standard = useMemo(
    () => standardColumns(known ?? [], isNarrow).filter((name) => !experiment || name !== "experiment"),
    [known, experiment, isNarrow],
  );
  const varied = useMemo(() => (known ?? []).filter((column) => column.varies).map(({ name }) => name), [known]);
  const columnsOfMetrics = useMemo(() => metricColumns(known ?? []), [known]);
  const names = (wanted.length ? wanted : standard).filter((name) => all.has(name));
  const columns = names.map((name) => /** @type {Column<Run>} */ (all.get(name)));
  const aggregated = names.filter((name) => columnsOfMetrics.has(name) || name === "steps" || name === "duration");
  const ranking = useGroupSettings().best || (columnsAnswer.value?.best_by ?? "");
  // In the workspace of an experiment the best trials come first.
  const standardSort = isWorkspace && experiment ? ranking.replace(/^max\./, "-max.") || "-id" : members ? "id" : "-id";
  const sort = chosenSort || standardSort;
  const alsoRead = isGrouped ? [...groupNames, ...(all.has(ranking) ? [ranking] : [])] : [];
  const question = known && {
    experiment,
    trials: members,
    where: condition,
    search,
    sort,
    archived: archived !== "",
    columns: [...new Set([...names, ...alsoRead])],
  };
  const trials = useTrials(question ?? null, isGrouped);
  const groups = useMemo(
    () =>
      isGrouped
        ? grouped(
            Array.from({ length: Math.max(0, trials.total) }, (_, index) => trials.rowAt(index)).filter((run) => run !== undefined),
            groupNames,
            folded,
            aggregated,
            ranking,
          )
        : null,
    [groupNames.join("\n"), aggregated.join("\n"), ranking, folded, trials.answer],
  );
  const workspace = useWorkspace(hasCharts && question ? question : null, columnsAnswer.value, groups);
  const metrics = useMetricNames(useMemo(() => workspace.subjects.flatMap(({ ids }) => ids), [workspace.subjects]));
  const subjectOf = useMemo(() => new Map(workspace.subjects.flatMap(({ key, ids }) => ids.map((id) => [String(id), key]))), [workspace.subjects]);
  const keyOfSubject = (/** @type {Run | RunGroup} */ item) => ("ids" in item ? item.key : (subjectOf.get(item.key) ?? item.key));
  const eyeOf = (/** @type {Run | RunGroup} */ item) =>
    html`<${Eye} workspace=${workspace} ids=${"ids" in item ? item.ids.map(String) : [item.key]} subject=${keyOfSubject(item)} name=${"ids" in item ? item.group : `trial ${item.key}`} />`;
  const isAnyShown = workspace.subjects.length > 0;
  const eyes = {
    name: "eye",
    title: "Curves",
    head: html`<${EyeButton} label="Curves of all trials" isOpen=${isAnyShown} isInHead=${true} onClick=${() => workspace.showAll(!isAnyShown)} />`,
    width: 72,
    isFixed: true,
    show: eyeOf,
  };
  const numItems = groups?.length ?? trials.total;
  const isFiltered = Boolean(where || search || hidden.length);

  const chooseAll = async () => {
    try {
      setChosen(new Map((await trials.readAll()).map((run) => [run.key, run])));
    } catch (error) {
      sayFailure(error);
    }
  };
  const saveTable = async () => {
    const rows = (await trials.readAll()).map(({ values }) => names.map((name) => values[name]));
    saveFile("trials.csv", csvText([names, ...rows]), "text/csv");
  };
  const onKey = (/** @type {string} */ key, /** @type {Run | RunGroup | undefined} */ item) => {
    if (key === "e" && hasCharts && item) {
      const ids = "ids" in item ? item.ids.map(String) : [item.key];
      workspace.show(ids, !ids.some(workspace.isShown));
    } else if (key === "c" && chosen.size > 0)
      go(linkTo(["compare"], { trials: [...chosen.keys()].join(","), group: currentPlace().query.get("group") }));
    else return false;
    return true;
  };
  const more = [
    { label: archived ? "Leave archived ones out" : "Show archived ones too", onSelect: () => setArchived(archived ? "" : "1") },
    { label: "Save the table as CSV", onSelect: () => saveTable().catch(sayFailure) },
  ];
  const nameOf = (/** @type {string} */ name) => all.get(name)?.title;
  const groupChoice = html`<${GroupChoice} names=${(known ?? []).filter(({ name }) => name !== "id").map(({ name }) => [name, nameOf(name)])} varied=${varied} numExperiments=${columnsAnswer.value?.num_experiments ?? 0} />`;
  const error = trials.error ?? columnsAnswer.error;
  return html`
    <div class=${`toolbar ${hasCharts ? "shared" : ""}`}>
      ${!experiment && !members && html`<${KindChoice} kind="trials" />`}
      ${!isWorkspace && html`<${Choice} label="View" values=${VIEWS} value=${view} onChange=${setView} />`}
      <input
        type="search"
        class="search"
        placeholder="Search  /"
        title="A part of a text, or a regular expression between slashes: /resnet(18|50)/"
        aria-label="Search names, labels, reasons and hyperparameters"
        aria-invalid=${error?.kind === "bad_expression"}
        value=${search}
        onInput=${withText(setSearch)}
      />
      ${hasCharts && !isCrowded && html`${groupChoice}<${SavedViews} />`}
      <${Folded} label="Filter, columns" isFlat=${!isNarrow && !hasCharts}>
      <${Filter} where=${where} onChange=${setWhere} error=${trials.error} names=${[...all.keys()]} />
      ${(!hasCharts || isCrowded) && html`${groupChoice}<${SavedViews} />`}
      <button onClick=${() => setIsChoosingColumns(true)}>Columns</button>
      <${Menu} label="More of the table" text="⋯" items=${more} kind="" />
      <//>
      ${hasCharts && trials.total > 0 && columnsAnswer.value && html`<${WorkspaceTools} workspace=${workspace} columns=${columnsAnswer.value} metrics=${metrics} />`}
      <span class="spread"></span>
      <span class="soft number" role="status">
        ${trials.total >= 0 && !trials.isOutdated && counted(trials.total, "trial")}${trials.isOutdated && "loading …"}${!trials.isOutdated && isFiltered && !experiment && !members && trials.answer ? ` of ${trials.answer.num_trials.toLocaleString("en-US")}` : ""}
        ${hidden.length > 0 && html` · <button class="quiet small" onClick=${() => setHidden([])}>${hidden.length} hidden, show</button>`}
      </span>
    </div>
    ${error && (isNarrow || hasCharts || error.kind !== "bad_condition") && html`<${Failure} error=${error} onRetry=${trials.reload} />`}
    ${
      trials.total < 0
        ? !error && html`<${Loading} what="trials" numLines=${12} />`
        : trials.total === 0
          ? html`<${Nothing} isFiltered=${isFiltered} />`
          : html`<div class=${hasCharts ? "workspace" : "whole"}>
            <${Grid}
              label="Trials"
              isOutdated=${trials.isOutdated}
              numItems=${numItems}
              itemAt=${groups ? (/** @type {number} */ index) => groups[index] : trials.rowAt}
              onView=${groups ? undefined : trials.need}
              columns=${hasCharts ? [eyes, ...columns] : columns}
              keyOf=${keyOf}
              sort=${sort}
              onSort=${setSort}
              chosen=${chosen}
              onChoose=${setChosen}
              onChooseAll=${chooseAll}
              linkOf=${linkOf}
              onFold=${groups ? (/** @type {string} */ key) => setFolded(toggled(folded, key)) : undefined}
              showGroup=${(/** @type {RunGroup} */ group) => html`${hasCharts && eyeOf(group)}${showBest(group)}`}
              showGroupCell=${showAggregate}
              groupColumns=${aggregated}
              onKey=${onKey}
              onPoint=${hasCharts ? (/** @type {Run | RunGroup | null} */ item) => highlight(item && keyOfSubject(item)) : undefined}
            />
            ${hasCharts && html`<${WorkspaceCharts} workspace=${workspace} metrics=${metrics} ranking=${ranking} />`}
          </div>`
    }
    ${
      chosen.size > 0 &&
      html`
      <${SelectionBar}
        kind="trials"
        runs=${[...chosen.values()].map(({ values }) => ({ ...values, trial_id: values.id, labels: values.label, is_archived: values.archived }))}
        onClear=${() => setChosen(new Map())}
        onHide=${() => {
          setHidden([...hidden, ...chosen.keys()]);
          setChosen(new Map());
        }}
        onDone=${trials.reload}
      />
    `
    }
    ${
      isChoosingColumns &&
      html`<${ColumnChooser} all=${all} described=${described} hasMore=${columnsAnswer.value?.next != null} chosen=${names} standard=${standard} onChoose=${setWanted} onClose=${() => setIsChoosingColumns(false)} />`
    }
  `;
}

/** @param {{isFiltered: boolean}} props */
const Nothing = ({ isFiltered }) =>
  isFiltered
    ? html`
        <${Empty} title="Nothing fits the filter.">
          <button onClick=${() => changeSettings({ where: null, search: null, hide: null })}>Show everything</button>
        <//>
      `
    : html`
        <${Empty} title="No trial yet.">
          <p>Report a metric, and it appears here.</p>
          <pre><code>${EXAMPLE}</code></pre>
        <//>
      `;

const EXAMPLE = `import core_sdk

with core_sdk.core.init() as ctx:
    for step in range(100):
        ctx.train.report_training_metrics(step, {"loss": 1 / (step + 1)})`;

const showBest = (/** @type {RunGroup} */ { best }) =>
  best && html`<span>best <a href=${linkTo(["trials", best.id])} tabindex="-1">${best.id}</a> ${formatNumber(best.value)}</span>`;

function showAggregate(/** @type {RunGroup} */ { aggregates }, /** @type {string} */ name) {
  const found = own(aggregates, name);
  if (!found) return null;
  const { mean, std, count, numLeftOut } = found;
  const text = `${formatNumber(mean)}${std === null ? "" : ` ± ${formatNumber(std, 2)}`}`;
  const title = `${text}: mean${std === null ? "" : " and standard deviation"}, n = ${count}${numLeftOut > 0 ? `, ${counted(numLeftOut, "value")} not finite` : ""}`;
  return html`<span title=${title}>${text}</span>`;
}

const keyOf = (/** @type {Run} */ { key }) => key;
const linkOf = (/** @type {Run} */ { key }) => linkTo(["trials", key]);

/** The condition, without the trials that are hidden. */
function withHidden(/** @type {string} */ where, /** @type {string[]} */ hidden) {
  const shown = hidden.map((id) => `id != ${Number(id)}`).join(" and ");
  return where && shown ? `(${where}) and ${shown}` : where || shown;
}

/** @param {Set<string>} set @param {string} key */
function toggled(set, key) {
  const next = new Set(set);
  if (!next.delete(key)) next.add(key);
  return next;
}
