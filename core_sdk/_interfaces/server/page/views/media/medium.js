/** One medium: a card with what it shows, by its kind. What a run has written is never a part of this page. */

import { html, useErrorBoundary, useState } from "../../preact.js";
import { Switch } from "../../parts/choice.js";
import { Difference } from "../../parts/difference.js";
import { saveFile } from "../../parts/saving.js";
import { Failure } from "../../parts/states.js";
import { formatDuration, formatSize } from "../../parts/text.js";
import { forgetFailure, useContents } from "../../state/contents.js";
import { Histogram } from "./histogram.js";
import { indexAt } from "./choosing.js";
import { Matrix } from "./matrix.js";
import { Table } from "./table.js";
/** @import { MediaItem, MediaSeries } from "api" */
/** @import { Content } from "../../state/contents.js" */

const [LEAST_WIDTH, MOST_WIDTH] = [128, 560];

/** @typedef {{trialId: number, name: string, items: MediaItem[], index: number, content: Content}} Shown */

/** @param {{trialId: number, series: MediaSeries, step: number, title: string}} props */
export function Medium({ trialId, series: { group, name, items }, step, title }) {
  const index = indexAt(items, step);
  const item = index < 0 ? null : items[index];
  const [turn, setTurn] = useState(0);
  const [content] = useContents(trialId, [item], turn);
  const again = () => {
    forgetFailure(trialId, items[index]);
    setTurn(turn + 1);
  };
  const place = item === null ? "" : `step ${item.steps_completed}${item.is_superseded ? `, superseded, attempt ${item.attempt}` : ""}`;
  const save = () => saveFile(`${group}_${name}_step${item?.steps_completed}.${item?.file_name.split(".")[1]}`, /** @type {Blob} */ (content?.blob));
  return html`
    <figure class=${`chart medium ${item?.is_superseded ? "superseded" : ""}`}>
      <figcaption class="chart-head">
        <span class="chart-title" title=${title}>${title}</span>
        <span class="soft">${place}</span>
        ${content?.blob && html`<button class="quiet small" aria-label=${`Save ${title}`} title=${item && formatSize(item.size_bytes)} onClick=${save}>Save</button>`}
      </figcaption>
      ${item === null && html`<p class="soft">Nothing yet at this step.</p>`}
      ${item?.problem && html`<${Failure} error=${{ message: "The content was not kept.", hint: item.problem }} />`}
      ${content?.error && html`<${Failure} error=${content.error} onRetry=${again} />`}
      ${item !== null && content !== null && !content.error && html`<div class="medium-body">${content.blob === null ? html`<${Waiting} item=${item} />` : html`<${Body} ...${{ trialId, name: title, items, index, content }} />`}</div>`}
      ${item?.caption && html`<p class="medium-caption">${item.caption}</p>`}
    </figure>
  `;
}

/** The place of what comes, as large as that. @param {{item: MediaItem}} props */
const Waiting = ({ item }) =>
  html`<div role="status" aria-label="Loading" class="medium-waiting" style=${{ width: `${widthOf(item)}px`, aspectRatio: `${item.width ?? 3} / ${item.height ?? 1}` }}></div>`;

/** Small pictures are shown larger than they are. @param {MediaItem} item */
const widthOf = ({ width }) => Math.min(MOST_WIDTH, Math.max(LEAST_WIDTH, width ?? MOST_WIDTH));

/** @param {Shown} props */
function Body(props) {
  const { trialId, name, items, index, content } = props;
  const item = items[index];
  const text = content.text ?? "";
  const [problem] = useErrorBoundary(); // a content that is not what its kind says
  if (item.media_type === "text/html") return html`<${Frame} key=${item.file_name} html=${text} title=${name} />`;
  if (item.media_type.startsWith("image/")) return html`<${Picture} item=${item} name=${name} url=${content.url} />`;
  if (item.media_type.startsWith("audio/")) {
    return html`<audio controls aria-label=${name} src=${content.url}></audio>${item.duration_s !== null && html`<span class="soft">${formatDuration(item.duration_s)}</span>`}`;
  }
  if (item.media_type.startsWith("video/")) {
    return html`<video controls loop muted playsinline aria-label=${name} style=${{ width: `${widthOf(item)}px` }} src=${content.url}></video>`;
  }
  if (item.kind === "text") return html`<${Text} ...${props} />`;
  if (!problem && item.kind === "histogram") return html`<${Histogram} trialId=${trialId} items=${items} item=${item} text=${text} />`;
  if (!problem && item.kind === "table") return html`<${Table} text=${text} name=${name} />`;
  if (!problem && item.kind === "confusion_matrix") return html`<${Matrix} text=${text} name=${name} />`;
  return html`<p class="soft">This page cannot show it. It can be saved.</p>`;
}

/** A browser runs nothing in a picture, not even in SVG. @param {{item: MediaItem, name: string, url: string}} props */
function Picture({ item, name, url }) {
  const isSmall = item.width !== null && item.width < LEAST_WIDTH;
  return html`<img class=${isSmall ? "pixels" : ""} alt=${item.caption || name} src=${url} style=${{ width: `${widthOf(item)}px` }} />`;
}

/** The titles of figures that somebody has let run in this tab, so that their other steps run too. @type {Set<string>} */
const allowed = new Set();

/**
 * HTML in a document of its own origin, which reaches neither this page nor its key. No policy of a browser keeps a
 * script from every way into the network, such as WebRTC, so it runs only when somebody says so.
 * @param {{html: string, title: string}} props
 */
function Frame({ html: source, title }) {
  const [isAllowed, setIsAllowed] = useState(allowed.has(title));
  const [isGiven, setIsGiven] = useState(false);
  const allow = () => {
    allowed.add(title);
    setIsAllowed(true);
  };
  if (!isAllowed) {
    return html`
      <p class="soft">This figure is HTML whose scripts have to run. They reach neither this page nor its key, but a browser may let them reach the network.</p>
      <button class="small" onClick=${allow}>Run it</button>
    `;
  }
  const give = (/** @type {Event} */ { target }) => {
    if (!isGiven) /** @type {HTMLIFrameElement} */ (target).contentWindow?.postMessage(source, "*");
    setIsGiven(true);
  };
  return html`<iframe class="medium-frame" src="frame.html" sandbox="allow-scripts" title=${title} onLoad=${give}></iframe>`;
}

/** @param {Shown} props */
function Text({ trialId, name, items, index, content }) {
  const [isDifference, setIsDifference] = useState(false);
  const before = index > 0 ? items[index - 1] : null;
  const [earlier] = useContents(trialId, [isDifference ? before : null]);
  return html`
    ${before && html`<${Switch} label="Difference to the step before" isOn=${isDifference} onChange=${setIsDifference} />`}
    ${
      isDifference && before && earlier?.text != null
        ? html`<${Difference} left=${earlier.text} right=${content.text ?? ""} leftName=${`step ${before.steps_completed}`} rightName=${`step ${items[index].steps_completed}`} />`
        : html`<pre class="medium-text" tabindex="0" aria-label=${name}>${content.text}</pre>`
    }
  `;
}
