/** Views of the table and of charts that the home remembers by a name. */

import { html, useState } from "../../preact.js";
import { Dialog } from "../../parts/dialog.js";
import { Menu } from "../../parts/menu.js";
import { sayFailure } from "../../parts/toast.js";
import { currentPlace, go, linkTo, usePlace } from "../../state/place.js";
import { byline } from "../../parts/text.js";
import { useSavedViews } from "../../state/preferences.js";
import { isEnter, withText } from "../../parts/field.js";

export function SavedViews() {
  const { views, save, forget } = useSavedViews();
  const [isSaving, setIsSaving] = useState(false);
  const { path, query: now } = usePlace();
  const items = [
    // A view of some trials can be used for others.
    ...views.map(({ name, query, author }) => ({
      label: `${name} ${byline(author)}`.trim(),
      onSelect: () => go(linkTo(path, { ...query, trials: now.get("trials") })),
    })),
    { label: "Save this view …", onSelect: () => setIsSaving(true) },
    ...views.map(({ name }) => ({
      label: `Forget “${name}”`,
      isDangerous: true,
      onSelect: () => forget(name).catch(sayFailure),
    })),
  ];
  const saveAs = (/** @type {string} */ name) => {
    const { trials: _, ...query } = Object.fromEntries(currentPlace().query);
    save({ name, query }).catch(sayFailure);
    setIsSaving(false);
  };
  return html`
    <${Menu} label="Saved views" text="Views ▾" items=${items} kind="" />
    ${isSaving && html`<${NameDialog} onSave=${saveAs} onClose=${() => setIsSaving(false)} />`}
  `;
}

/** @param {{onSave: (name: string) => void, onClose: () => void}} props */
function NameDialog({ onSave, onClose }) {
  const [name, setName] = useState("");
  return html`
    <${Dialog} title="Save this view" onClose=${onClose}>
      <div class="dialog-body">
        <p class="soft">Its columns, filter, order, groups and charts. The home remembers it; the address of the page holds it too.</p>
        <input
          type="text"
          aria-label="Name of the view"
          placeholder="Name"
          autofocus
          value=${name}
          onInput=${withText(setName)}
          onKeyDown=${(/** @type {KeyboardEvent} */ event) => isEnter(event) && name.trim() && onSave(name.trim())}
        />
      </div>
      <div class="dialog-feet">
        <button onClick=${onClose}>Cancel</button>
        <button class="primary" disabled=${!name.trim()} onClick=${() => onSave(name.trim())}>Save</button>
      </div>
    <//>
  `;
}
