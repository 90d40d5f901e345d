/** What somebody writes or chooses in a field of a form. */

/** A listener that uses the text of its field. @param {(text: string) => void} use */
export const withText =
  (use) =>
  (/** @type {Event} */ { target }) =>
    use(/** @type {HTMLInputElement} */ (target).value);

/** Returns whether the key ends what is written; an Enter that chooses a word of an input method does not. @param {KeyboardEvent} event */
export const isEnter = (event) => event.key === "Enter" && !event.isComposing;
