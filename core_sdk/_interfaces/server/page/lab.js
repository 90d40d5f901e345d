/** The page of a lab: sign in, go to a workspace, make and revoke tokens; owners invite people. */

import { html, render, useEffect, useState } from "./preact.js";
import { ApiError } from "./state/api.js";
import { ask, findToken, keepKey } from "./state/token.js";

/** @typedef {{person: string, workspaces: Record<string, "reader" | "writer" | "owner">}} Me */
/** @typedef {{id: string, kind: string, person: string, created: number, expires: number | null, workspace: string, role: string | null, trial_id: number | null, label: string, last_used: number | null}} Row */

const ROLES = ["reader", "writer", "owner"];
const root = /** @type {HTMLElement} */ (document.getElementById("page"));

await findToken();
const problem = await redeem();
render(html`<${Lab} problem=${problem} />`, root);

/** Signs in with the one-time link in the address, which is then in no history. @returns {Promise<string>} What went wrong. */
async function redeem() {
  const invitation = /^#invitation=(\w+)$/.exec(location.hash)?.[1];
  if (!invitation) return "";
  history.replaceState(null, "", location.pathname);
  try {
    const { key } = await post("api/v1/session", { invitation });
    if (key) keepKey(key);
    return "";
  } catch (error) {
    return told(error);
  }
}

/** @param {string} url @param {object} [body] */
async function post(url, body = {}) {
  const headers = { "Content-Type": "application/json", "X-Core-SDK-Action": "1" };
  return answered(await ask(url, { method: "POST", headers, body: JSON.stringify(body) }));
}

/** @param {Response} response */
async function answered(response) {
  const answer = await response.json();
  if (!response.ok) throw new ApiError(answer.error, response.status);
  return answer;
}

/** @param {string} url */
const get = async (url) => answered(await ask(url));

/** @param {unknown} error */
const told = (error) => (error instanceof ApiError ? [error.message, error.hint].filter(Boolean).join(". ") : "The server does not answer.");

/** @param {{problem: string}} props */
function Lab({ problem: first }) {
  const [me, setMe] = useState(/** @type {Me | null | undefined} */ (undefined));
  const [problem, setProblem] = useState(first);
  useEffect(() => {
    get("api/v1/me").then(setMe, (error) => {
      setMe(null);
      if (!(error instanceof ApiError && error.status === 401)) setProblem(told(error));
    });
  }, []);
  if (me === undefined) return html`<p class="soft">…</p>`;
  return html`
    <h1>Core SDK</h1>
    ${problem && html`<p role="alert">${problem}</p>`} ${me === null ? html`<${SignIn} />` : html`<${SignedIn} me=${me} onProblem=${setProblem} />`}
  `;
}

function SignIn() {
  const [ways, setWays] = useState({ oidc: false });
  useEffect(() => void get("api/v1/sign-in").then(setWays, () => undefined), []);
  return html`<section>
    ${ways.oidc && html`<p><a href="oidc/begin">Sign in</a> with the account that your lab has named.</p>`}
    <p>You are not signed in. Open the one-time link that an owner of a workspace has made for you.</p>
  </section>`;
}

/** @param {{me: Me, onProblem: (problem: string) => void}} props */
function SignedIn({ me, onProblem }) {
  const names = Object.keys(me.workspaces).sort();
  const leave = async () => {
    await post("api/v1/session/actions/end").catch(() => undefined);
    keepKey("");
    location.reload();
  };
  return html`
    <section>
      <p>${me.person} <button class="small" onClick=${leave}>Sign out</button></p>
      <h2>Workspaces</h2>
      ${names.length === 0 && html`<p>You are a member of no workspace yet.</p>`}
      <table>
        <tbody>
          ${names.map((name) => html`<${Workspace} key=${name} name=${name} role=${me.workspaces[name]} />`)}
        </tbody>
      </table>
    </section>
    <${Tokens} me=${me} onProblem=${onProblem} />
    ${names.filter((name) => me.workspaces[name] === "owner").map((name) => html`<${People} key=${name} workspace=${name} onProblem=${onProblem} />`)}
  `;
}

/** A workspace, and how much of each kind has happened there in a week. @param {{name: string, role: string}} props */
function Workspace({ name, role }) {
  const [happened, setHappened] = useState(/** @type {{kind: string, lines: string[]}[]} */ ([]));
  useEffect(() => {
    get(`w/${name}/api/v1/night?since=${Date.now() / 1000 - 7 * 86400}`).then(
      (night) => setHappened(night.happened),
      () => undefined,
    );
  }, []);
  const week = happened.map(({ kind, lines }) => `${lines.length} ${kind}`).join(", ");
  return html`<tr>
    <td><a href=${`w/${name}/`}>${name}</a></td>
    <td class="soft">${role}</td>
    <td>${week && html`this week: <a href=${`w/${name}/#/night?hours=168`}>${week}</a>`}</td>
  </tr>`;
}

/** @param {{me: Me, onProblem: (problem: string) => void}} props */
function Tokens({ me, onProblem }) {
  const [rows, setRows] = useState(/** @type {Row[]} */ ([]));
  const [made, setMade] = useState("");
  const load = () => get("api/v1/tokens").then(setRows, (error) => onProblem(told(error)));
  useEffect(() => void load(), []);
  const create = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const form = new FormData(/** @type {HTMLFormElement} */ (event.target));
    const body = { workspace: form.get("workspace"), role: form.get("role"), days: Number(form.get("days")), label: form.get("label") };
    await post("api/v1/tokens/actions/create", body).then(
      ({ token }) => setMade(token),
      (error) => onProblem(told(error)),
    );
    load();
  };
  const revoke = (/** @type {Row} */ row) => post(`api/v1/tokens/${row.id}/actions/revoke`).then(load, (error) => onProblem(told(error)));
  return html`<section>
    <h2>Your tokens and links</h2>
    <${Rows} rows=${rows} onRevoke=${revoke} />
    <form onSubmit=${create}>
      <select name="workspace" aria-label="workspace">
        ${Object.keys(me.workspaces).map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
      </select>
      <${RoleChoice} />
      <label><input name="days" type="number" min="1" max="366" value="90" /> days</label>
      <input name="label" placeholder="what it is for" maxlength="200" />
      <button>Make a token</button>
    </form>
    ${made && html`<p role="status">Copy it now, nobody can read it again: <code>${made}</code></p>`}
  </section>`;
}

/** @param {{workspace: string, onProblem: (problem: string) => void}} props */
function People({ workspace, onProblem }) {
  const [answer, setAnswer] = useState(/** @type {{members: Record<string, string>, credentials: Row[]} | null} */ (null));
  const [link, setLink] = useState("");
  const api = `w/${workspace}/api/v1`;
  const load = () => get(`${api}/people`).then(setAnswer, (error) => onProblem(told(error)));
  useEffect(() => void load(), []);
  const done = (/** @type {Promise<unknown>} */ promise) => promise.catch((error) => onProblem(told(error))).then(load);
  const invite = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const form = new FormData(/** @type {HTMLFormElement} */ (event.target));
    await done(post(`${api}/people/actions/invite`, { person: form.get("person"), role: form.get("role") }).then(({ address }) => setLink(address)));
  };
  if (answer === null) return null;
  return html`<section>
    <h2>People of ${workspace}</h2>
    <table>
      <tbody>
        ${Object.entries(answer.members).map(
          ([person, role]) =>
            html`<tr key=${person}>
              <td>${person}</td>
              <td class="soft">${role}</td>
              <td><button class="small" onClick=${() => done(post(`${api}/people/actions/set`, { person, role: null }))}>Remove</button></td>
            </tr>`,
        )}
      </tbody>
    </table>
    <form onSubmit=${invite}>
      <input name="person" required placeholder="name or address of e-mail" maxlength="200" />
      <${RoleChoice} />
      <button>Make a one-time link</button>
    </form>
    ${link && html`<p role="status">It signs in whoever opens it first, within three days: <code>${link}</code></p>`}
    <${Rows} rows=${answer.credentials} onRevoke=${(/** @type {Row} */ row) => done(post(`${api}/people/credentials/${row.id}/actions/revoke`))} />
  </section>`;
}

/** @param {{rows: Row[], onRevoke: (row: Row) => void}} props */
function Rows({ rows, onRevoke }) {
  if (rows.length === 0) return null;
  const day = (/** @type {number | null} */ time) => (time === null ? "–" : new Date(time * 1000).toISOString().slice(0, 10));
  return html`<table>
    <thead>
      <tr>${["", "person", "workspace", "role", "label", "used", "until", ""].map((name) => html`<th key=${name}>${name}</th>`)}</tr>
    </thead>
    <tbody>
      ${rows.map(
        (row) =>
          html`<tr key=${row.id}>
            <td>${row.kind}</td>
            <td>${row.person}</td>
            <td>${row.workspace}</td>
            <td>${row.trial_id === null ? row.role : `trial ${row.trial_id}`}</td>
            <td>${row.label}</td>
            <td>${day(row.last_used)}</td>
            <td>${day(row.expires)}</td>
            <td><button class="small" onClick=${() => onRevoke(row)}>Revoke</button></td>
          </tr>`,
      )}
    </tbody>
  </table>`;
}

function RoleChoice() {
  return html`<select name="role" aria-label="role">${ROLES.map((role) => html`<option key=${role} value=${role}>${role}</option>`)}</select>`;
}
