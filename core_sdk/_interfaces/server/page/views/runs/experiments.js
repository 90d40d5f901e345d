/** The table of experiments. */

import { html, useMemo, useState } from "../../preact.js";
import { useIsNarrow } from "../../parts/folded.js";
import { Grid } from "../../parts/grid.js";
import { Answered, Empty, Remark } from "../../parts/states.js";
import { counted } from "../../parts/text.js";
import { address } from "../../state/api.js";
import { useAnswer } from "../../state/answers.js";
import { linkTo, useSetting } from "../../state/place.js";
import { NARROW_EXPERIMENTS, OF_EXPERIMENTS, OWNER } from "./columns.js";
import { KindChoice } from "./kind-choice.js";
import { inOrder } from "./order.js";
import { SelectionBar } from "./selection.js";
import { withText } from "../../parts/field.js";
/** @import { ExperimentFigures, ExperimentRow, ExperimentsAnswer } from "api" */

const MAX_ROWS = 1000;

export function Experiments() {
  const isNarrow = useIsNarrow();
  const [search, setSearch] = useSetting("search");
  const [sort, setSort] = useSetting("sort", "-id");
  const [archived, setArchived] = useSetting("archived");
  const [chosen, setChosen] = useState(/** @type {Map<string, ShownExperiment>} */ (new Map()));
  const answer = useAnswer(address(["experiments"], { archived: archived || null, limit: MAX_ROWS }), {
    follows: ({ experiments }) => experiments.length > 0,
  });
  const rows = useMemo(
    () => (answer.value?.experiments ?? []).map((row, index) => rowOf(row, /** @type {ExperimentsAnswer} */ (answer.value).figures[index])),
    [answer.value],
  );
  const shown = useMemo(
    () =>
      inOrder(
        rows.filter((row) => mentions(row, search)),
        sort,
      ),
    [rows, search, sort],
  );
  return html`
    <div class="toolbar">
      <${KindChoice} kind="experiments" />
      <input type="search" class="search" placeholder="Search  /" aria-label="Search names, labels and descriptions" value=${search} onInput=${withText(setSearch)} />
      <button aria-pressed=${archived !== ""} onClick=${() => setArchived(archived ? "" : "1")}>${archived ? "Without archived" : "With archived"}</button>
      <span class="spread"></span>
      <span class="soft" role="status">${answer.value && counted(shown.length, "experiment")}</span>
    </div>
    <${Answered} answer=${answer} what="experiments">
      ${(/** @type {ExperimentsAnswer} */ { num_found: numFound }) =>
        html`${numFound > MAX_ROWS && html`<${Remark}>The newest ${MAX_ROWS} of ${numFound} experiments are shown.<//>`}${
          shown.length === 0
            ? html`<${Empty} title=${rows.length ? "Nothing fits the search." : "No experiment yet."}>${!rows.length && html`<pre><code>core-sdk experiment create config.yaml .</code></pre>`}<//>`
            : html`
              <${Grid}
                label="Experiments"
                numItems=${shown.length}
                itemAt=${(/** @type {number} */ index) => shown[index]}
                columns=${[...(rows.some(({ values }) => values.owner) ? [OWNER] : []), ...(isNarrow ? NARROW_EXPERIMENTS : OF_EXPERIMENTS)]}
                keyOf=${(/** @type {ShownExperiment} */ { key }) => key}
                sort=${sort}
                onSort=${setSort}
                chosen=${chosen}
                onChoose=${setChosen}
                onChooseAll=${() => setChosen(new Map(shown.map((row) => [row.key, row])))}
                linkOf=${(/** @type {ShownExperiment} */ { key }) => linkTo(["experiments", key])}
              />
            `
        }`}
    <//>
    ${
      chosen.size > 0 &&
      html`
      <${SelectionBar}
        kind="experiments"
        runs=${[...chosen.values()].map(({ experiment }) => experiment)}
        onClear=${() => setChosen(new Map())}
        onDone=${answer.reload}
      />
    `
    }
  `;
}

/** @typedef {ReturnType<typeof rowOf>} ShownExperiment */

function rowOf(/** @type {ExperimentRow} */ experiment, /** @type {ExperimentFigures} */ { metric, best, duration }) {
  const { experiment_id: id, name, state, num_trials: trials, created: started, labels: label, description, search, owner, home } = experiment;
  const figures = { metric, best: best?.value, best_trial: best?.trial_id, duration: duration ?? Date.now() / 1000 - started };
  const { searcher, reason, progress } = search ?? {};
  return {
    key: String(id),
    experiment,
    values: { id, name, state, trials, started, label, description, searcher, reason, progress, owner, home, ...figures },
  };
}

function mentions(/** @type {ShownExperiment} */ { values: { id, name, label, description, owner } }, /** @type {string} */ search) {
  const text = [id, name, ...label, description, owner].join("\n").toLowerCase();
  return search
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}
