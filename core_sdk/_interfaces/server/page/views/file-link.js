/** Links to files of the server. */

import { html } from "../preact.js";
import { saveFrom } from "../parts/saving.js";
import { sayFailure } from "../parts/toast.js";
import { address, get } from "../state/api.js";
import { useDoes } from "../state/home.js";
/** @import { Question } from "api" */
/** @import { ComponentChildren } from "preact" */

/**
 * A link to a file of the server. The browser saves it by itself, however large it is, and then sends no header: a
 * ticket in the address stands for the token.
 * @param {{path: Question["path"], query?: Record<string, string>, kind?: string, children: ComponentChildren}} props
 */
export function FileLink({ path, query = {}, kind = "", children }) {
  const does = useDoes();
  if (!does(`${path[0]}/${path.at(-1)}`)) return html`<span class=${kind}>${children}</span>`;
  const save = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      const { ticket } = await get(address(["ticket"]));
      saveFrom(address(path, { ...query, ticket }));
    } catch (error) {
      sayFailure(error);
    }
  };
  return html`<a class=${kind} href=${address(path, query)} download onClick=${save}>${children}</a>`;
}
