/** Starts the page. */

import { html, render } from "./preact.js";
import { Shell } from "./views/shell.js";
import { openEvents } from "./state/events.js";
import { findToken } from "./state/token.js";

await findToken();
openEvents();
render(html`<${Shell} />`, /** @type {HTMLElement} */ (document.getElementById("page")));
