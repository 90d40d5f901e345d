/** The frame of every view: where one is, where one can go, and whether what is seen is live. */

import { html, useEffect, useErrorBoundary, useState } from "../preact.js";
import { Dialog } from "../parts/dialog.js";
import { Empty, Failure, Remark, Title } from "../parts/states.js";
import { Progress } from "../parts/progress.js";
import { counted, firstOf } from "../parts/text.js";
import { Toasts } from "../parts/toast.js";
import { UNREACHABLE } from "../state/api.js";
import { useConnection } from "../state/events.js";
import { HomeProvider, useAskedHome } from "../state/home.js";
import { go, linkTo, usePlace } from "../state/place.js";
import { useTheme } from "../state/theme.js";
import { Runs } from "./runs/runs.js";
import { Trial } from "./trial/trial.js";
import { Experiment } from "./experiment/experiment.js";
import { Report } from "./experiment/report.js";
import { Compare } from "./compare.js";
import { Model } from "./models/model.js";
import { Models } from "./models/models.js";
import { Queue } from "./queue.js";
import { Night } from "./night.js";
/** @import { ComponentChildren } from "preact" */

const MAX_LEFT_OUT = 5;
const AWAY = { ...UNREACHABLE, hint: `${UNREACHABLE.hint} The page asks again by itself.` };
const LINKS = [
  ["runs", "Runs"],
  ["night", "News"],
  ["queue", "Queue"],
  ["models", "Models"],
];

export function Shell() {
  const { path } = usePlace();
  const [isHelpOpen, setIsHelpOpen] = useState(false);
  const home = useAskedHome();
  const first = path[0] ?? "runs";
  useShortcuts(() => setIsHelpOpen(true));
  useEffect(() => {
    document.title = [...path.slice(0, 3), "Core SDK"].join(" · ");
  }, [path.join("/")]);
  return html`
    <a class="skip" href="#content" onClick=${skip}>Skip to the content</a>
    <header class="head">
      <a class="brand" href=${linkTo(["runs"])} aria-label="Core SDK"><img src="icon.svg" alt="" /><span>Core SDK</span></a>
      <nav aria-label="Views">
        ${LINKS.filter(([name]) => !home?.refuses.includes(name)).map(([name, title]) => html`<a href=${linkTo([name])} aria-current=${name === first ? "page" : undefined}>${title}</a>`)}
      </nav>
      <span class="spread"></span>
      ${home && html`<span class="home" title=${home.location}>${home.location}</span>`}
      <${Connection} />
      <${ThemeButton} />
      <button class="quiet" aria-label="Keys" title="Keys  ?" onClick=${() => setIsHelpOpen(true)}>?</button>
    </header>
    <main id="content" tabindex="-1">
      ${useConnection() === "interrupted" && html`<${Failure} error=${AWAY} />`}
      ${home && home.left_out.length > 0 && html`<${Remark}>${counted(home.left_out.length, "record")} cannot be read, and what they describe is left out: ${home.left_out.slice(0, MAX_LEFT_OUT).join(", ")}${home.left_out.length > MAX_LEFT_OUT && " …"}<//>`}
      ${home?.reading && home.reading.num_read > 0 && html`<${Remark}>The records are being read, the newest first: ${firstOf(home.reading.num_read, home.reading.num_trials)} trials, ${counted(home.reading.num_points, "point")}. What is read already is here.<//>`}
      ${
        home?.reading && home.reading.num_read === 0
          ? html`<${Reading} reading=${home.reading} />`
          : html`<${HomeProvider} value=${home}><${Guarded} key=${path.slice(0, 2).join("/")}><${View} path=${path} /><//><//>`
      }
    </main>
    <${Toasts} />
    ${isHelpOpen && html`<${Help} onClose=${() => setIsHelpOpen(false)} />`}
  `;
}

/**
 * What stands for every view while the server reads the records for the first time, which may take minutes.
 * @param {{reading: import("api").Reading}} props
 */
const Reading = ({ reading: { num_read: numRead, num_trials: numTrials, num_points: numPoints } }) => html`
  <section class="view" aria-label="Reading the records">
    <div class="empty">
      <div role="status"><h1>Reading the records</h1></div>
      ${
        numTrials > 0
          ? html`
            <p class="number">${numRead.toLocaleString("en-US")} of ${counted(numTrials, "trial")}, ${counted(numPoints, "point")}</p>
            <p><${Progress} part=${numRead / numTrials} /></p>
          `
          : html`<p>The server looks for them.</p>`
      }
      <p>This is done once for a home; later only what is new is read.</p>
    </div>
  </section>
`;

/** @param {{path: string[]}} props */
function View({ path: [name = "runs", id = "", tab = ""] }) {
  if (name === "runs") return html`<${Runs} />`;
  if (name === "trials" && id) return html`<${Trial} key=${id} id=${id} tab=${tab} />`;
  if (name === "experiments" && id && tab === "report") return html`<${Report} key=${id} id=${id} />`;
  if (name === "experiments" && id) return html`<${Experiment} key=${id} id=${id} tab=${tab} />`;
  if (name === "compare") return html`<${Compare} />`;
  if (name === "models") return id ? html`<${Model} key=${id} id=${id} version=${tab} />` : html`<${Models} />`;
  if (name === "queue") return html`<${Queue} />`;
  if (name === "night") return html`<${Night} />`;
  return html`<${Title} text="Nothing is here" /><${Empty} title="There is no such view."><a href=${linkTo(["runs"])}>All runs</a><//>`;
}

/** A view that fails says so, and leaves the others as they are. @param {{children: ComponentChildren}} props */
function Guarded({ children }) {
  const [error, retry] = useErrorBoundary((/** @type {unknown} */ problem) => console.error(problem));
  if (!error) return children;
  return html`
    <${Title} text="Defect" />
    <${Empty} title="This view has a defect.">
      <pre>${String(error.stack ?? error).slice(0, 2000)}</pre>
      <button onClick=${retry}>Try again</button>
    <//>
  `;
}

function Connection() {
  const connection = useConnection();
  const words = { live: "Live", connecting: "Connecting", interrupted: "Server does not answer", refused: "Server refuses" }[connection];
  return html`<span class=${`connection connection-${connection}`} role="status" title=${words}><i></i><span>${words}</span></span>`;
}

function ThemeButton() {
  const [theme, setTheme] = useTheme();
  // Where the home does not remember it, for example as the server only reads, it lasts as long as the page.
  const next = /** @type {const} */ ({ system: "light", light: "dark", dark: "system" })[theme];
  const sign = { system: "◐", light: "☀", dark: "☾" }[theme];
  return html`<button class="quiet" aria-label=${`Theme: ${theme}`} title=${`Theme: ${theme}`} onClick=${() => setTheme(next).catch(() => {})}>${sign}</button>`;
}

const KEYS = [
  ["g r", "all runs"],
  ["g n", "the news"],
  ["g q", "the queue"],
  ["/ · Esc", "search (in the table and in logs) · go from the search to what it has found"],
  ["↑ ↓ PgUp PgDn Home End", "move in a table or a log"],
  ["Enter", "open the row"],
  ["Space", "choose the row; with Shift and an arrow, choose several"],
  ["Ctrl+A · Esc", "choose all rows · none"],
  ["c", "compare the chosen trials"],
  ["e", "show or hide the curve of the row"],
  ["+ − ← → 0", "zoom, pan and show all of a chart (also: drag; Ctrl or Shift with the wheel; double click)"],
  ["?", "these keys"],
];

/** @param {{onClose: () => void}} props */
const Help = ({ onClose }) => html`
  <${Dialog} title="Keys" onClose=${onClose}>
    <div class="dialog-body">
      <dl class="facts">${KEYS.map(([keys, meaning]) => html`<dt><kbd>${keys}</kbd></dt><dd>${meaning}</dd>`)}</dl>
    </div>
  <//>
`;

/** Where keys write or choose something. */
const TEXT_FIELDS = "input:not([type=checkbox], [type=radio], [type=range]), textarea, select";

/** Keys that work everywhere but where text is written. */
function useShortcuts(/** @type {() => void} */ openHelp) {
  useEffect(() => {
    let isAfterG = false;
    const onKey = (/** @type {KeyboardEvent} */ event) => {
      const target = /** @type {HTMLElement} */ (event.target);
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      if (event.key === "Escape" && target.matches("input[type=search]") && !target.closest("dialog")) {
        event.preventDefault(); // Chromium would empty it, and what was found would be gone.
        leave(target);
      }
      if (target.closest(`${TEXT_FIELDS}, dialog[open]`)) return;
      if (event.key === "?") openHelp();
      else if (isAfterG && event.key === "r") go(linkTo(["runs"]));
      else if (isAfterG && event.key === "n") go(linkTo(["night"]));
      else if (isAfterG && event.key === "q") go(linkTo(["queue"]));
      else if (event.key === "/") {
        event.preventDefault();
        /** @type {HTMLElement | null} */ (document.querySelector("input[type=search]"))?.focus();
      }
      isAfterG = event.key === "g";
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}

/** Goes from a search to the list behind it. */
function leave(/** @type {HTMLElement} */ search) {
  const lists = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("main [tabindex='0']"));
  const list = [...lists].find((one) => search.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING);
  if (list) list.focus();
  else search.blur();
}

function skip(/** @type {Event} */ event) {
  event.preventDefault();
  document.getElementById("content")?.focus();
}
