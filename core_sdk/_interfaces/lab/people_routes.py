"""The routes by which people sign in, and by which they and owners decide about tokens, links and members."""

from __future__ import annotations

import asyncio
import hmac
import html
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from core_sdk._ground.decoding import json_decoder
from core_sdk._interfaces.lab import oidc
from core_sdk._interfaces.lab.folder import Lab
from core_sdk._interfaces.lab.last_uses import LastUses
from core_sdk._interfaces.lab.people import INVITATION_S, Credential, invitation_address
from core_sdk._interfaces.lab.roles import ROLES, Grant, Role, Subject
from core_sdk._interfaces.lab.routes import GuardedRoute, Passed
from core_sdk._interfaces.lab.site import Site
from core_sdk._interfaces.server.app import PREFIX, json_answer, read_json
from core_sdk._interfaces.server.errors import RequestError

COOKIE = "__Host-core-sdk"
SESSION_S = 30 * 86400.0
PROVIDED_SESSION_S = 86400.0
"""The session of whoever comes by a provider, which may let them in no more tomorrow."""
_BEGUN_COOKIE = "__Host-core-sdk-oidc"
_BEGUN_S = 600
_RETURN_TO = "/oidc/callback"
_MOST_AT_PROVIDER = 4
"""The questions to a provider at a time, each of which blocks a thread."""

_COOKIE: Mapping[str, Any] = {"path": "/", "secure": True, "httponly": True, "samesite": "strict"}

Days = Annotated[float, msgspec.Meta(gt=0, le=366)]
_T = TypeVar("_T")


class _Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class SignInBody(_Body, frozen=True):
    invitation: str


class TokenBody(_Body, frozen=True):
    workspace: str
    role: Role = "reader"
    days: Days = 90.0
    label: Annotated[str, msgspec.Meta(max_length=200)] = ""


class LinkBody(_Body, frozen=True):
    """The subject of a new link: a trial, or the report of an experiment."""

    trial_id: Annotated[int, msgspec.Meta(ge=1)] | None = None
    experiment_id: Annotated[int, msgspec.Meta(ge=1)] | None = None
    days: Days = 30.0
    label: Annotated[str, msgspec.Meta(max_length=200)] = ""


class MemberBody(_Body, frozen=True):
    person: str
    role: Role | None
    """None removes the person, with all that they have tokens and links for."""


class InvitationBody(_Body, frozen=True):
    person: str
    role: Role = "reader"


class CredentialRow(msgspec.Struct, frozen=True):
    """A token, session, invitation or link, without what proves it."""

    id: str
    kind: str
    person: str
    created: float
    expires: float | None
    workspace: str
    role: str | None
    trial_id: int | None
    experiment_id: int | None
    label: str
    last_used: float | None


class PeopleRoutes:
    """Answers for one lab."""

    def __init__(self, lab: Lab, site: Site, last_uses: LastUses) -> None:
        self._lab = lab
        self._site = site
        self._last_uses = last_uses
        self._asking_provider = asyncio.Semaphore(_MOST_AT_PROVIDER)

    def of_lab(self) -> list[GuardedRoute]:
        api = PREFIX
        return [
            GuardedRoute(f"{api}/sign-in", "GET", "nothing", endpoint=self._ways_in),
            GuardedRoute("/oidc/begin", "GET", "nothing", endpoint=self._begin_oidc),
            GuardedRoute(_RETURN_TO, "GET", "nothing", endpoint=self._end_oidc),
            GuardedRoute(f"{api}/me", "GET", "person", endpoint=self._me),
            GuardedRoute(f"{api}/session", "POST", "nothing", endpoint=self._sign_in),
            GuardedRoute(f"{api}/session", "GET", "person", endpoint=self._key),
            GuardedRoute(f"{api}/session/actions/end", "POST", "person", endpoint=self._sign_out),
            GuardedRoute(f"{api}/tokens", "GET", "person", endpoint=self._own_credentials),
            GuardedRoute(f"{api}/tokens/actions/create", "POST", "person", endpoint=self._new_token),
            GuardedRoute(f"{api}/tokens/{{credential_id}}/actions/revoke", "POST", "person", endpoint=self._revoke_own),
        ]

    def of_workspaces(self) -> list[GuardedRoute]:
        api = PREFIX
        return [
            GuardedRoute(f"{api}/session", "GET", "reader", is_of_nothing=True, endpoint=self._key),
            GuardedRoute(f"{api}/links", "GET", "writer", endpoint=self._links),
            GuardedRoute(f"{api}/links/actions/create", "POST", "writer", endpoint=self._new_link),
            GuardedRoute(f"{api}/links/{{credential_id}}/actions/revoke", "POST", "writer", endpoint=self._revoke_link),
            GuardedRoute(f"{api}/people", "GET", "owner", endpoint=self._people),
            GuardedRoute(f"{api}/people/actions/set", "POST", "owner", endpoint=self._set_role),
            GuardedRoute(f"{api}/people/actions/invite", "POST", "owner", endpoint=self._invite),
            GuardedRoute(
                f"{api}/people/credentials/{{credential_id}}/actions/revoke", "POST", "owner", endpoint=self._revoke_any
            ),
        ]

    async def _me(self, request: Request) -> Response:
        grant = _passed(request).grant
        roles = {name: role for name, role in _roles(grant).items() if self._lab.has_workspace(name)}
        return json_answer({"person": grant.person if grant else "", "workspaces": roles})

    async def _sign_in(self, request: Request) -> Response:
        body = await _body(request, SignInBody)
        made = await run_in_threadpool(self._lab.people.redeem, body.invitation, SESSION_S)
        if made is None:
            words = "the link was used already, has expired, or was withdrawn"
            raise RequestError(401, "no_invitation", words, "Ask an owner of the workspace for a new one.")
        key, session = made
        request.state.passing.signed_in = session.person
        if not self._site.is_secure:
            return json_answer({"key": key})
        answer = json_answer({"key": ""})
        answer.set_cookie(COOKIE, key, max_age=int(SESSION_S), **_COOKIE)
        return answer

    async def _ways_in(self, _request: Request) -> Response:
        return json_answer({"oidc": self._site.provider is not None})

    async def _begin_oidc(self, _request: Request) -> Response:
        """Leads a browser to the provider, and gives it the secret by which it is known when it comes back."""
        secret = secrets.token_urlsafe(oidc.SECRET_BYTES)
        try:
            async with self._asking_provider:
                address = await run_in_threadpool(oidc.sign_in_address, self._provider(), secret, self._return_to)
        except RequestError as error:
            return _refusal_page(error)
        answer = RedirectResponse(address, 303)
        # Not `strict`: it comes back by a link of the provider's page.
        answer.set_cookie(_BEGUN_COOKIE, secret, max_age=_BEGUN_S, **{**_COOKIE, "samesite": "lax"})
        return answer

    async def _end_oidc(self, request: Request) -> Response:
        """Signs in whoever comes back from the provider."""
        answer: Response = RedirectResponse("/", 303)
        key = ""
        try:
            key = await self._key_by_oidc(request)
        except RequestError as error:
            answer = _refusal_page(error)
        answer.delete_cookie(_BEGUN_COOKIE, **_COOKIE)
        if key:
            answer.set_cookie(COOKIE, key, max_age=int(PROVIDED_SESSION_S), **_COOKIE)
        return answer

    async def _key_by_oidc(self, request: Request) -> str:
        provider, query, secret = self._provider(), request.query_params, request.cookies.get(_BEGUN_COOKIE, "")
        state = query.get("state", "").encode(errors="surrogatepass")
        if not secret or not hmac.compare_digest(state, oidc.state_of(secret).encode()):
            words = "this sign-in was begun in another browser, or more than ten minutes ago"
            raise RequestError(401, "foreign_sign_in", words, "Sign in again.")
        async with self._asking_provider:
            code = query.get("code", "")
            address = await run_in_threadpool(oidc.confirmed_address, provider, secret, self._return_to, code)
        request.state.passing.signed_in = address
        made = await run_in_threadpool(self._lab.people.sign_in, address, PROVIDED_SESSION_S)
        if made is None:
            words = f"{address} is a member of no workspace of this lab"
            raise RequestError(403, "no_member", words, "Ask an owner of a workspace to invite this address.")
        return made[0]

    def _provider(self) -> oidc.OidcProvider:
        if self._site.provider is None:
            raise RequestError(404, "no_provider", "this lab has no provider of sign-ins")
        return self._site.provider

    @property
    def _return_to(self) -> str:
        return f"{self._site.url}{_RETURN_TO}"

    async def _key(self, request: Request) -> Response:
        """Gives a page a key in place of the token with which it was opened: it ends with that token.

        Whoever asks with a cookie gets none: no script is to have what the cookie is worth.
        """
        people = self._lab.people
        grant = _passed(request).grant
        found = people.read().by_id(grant.credential_id) if grant and request.state.passing.has_bearer else None
        if found is None:
            return json_answer({"key": ""})
        key, _ = await run_in_threadpool(
            lambda: people.issue(
                "session",
                found.person,
                SESSION_S,
                workspace=found.workspace,
                role=found.role,
                only=found.only,
                parent=found.id,
            )
        )
        return json_answer({"key": key})

    async def _sign_out(self, request: Request) -> Response:
        grant = _passed(request).grant
        if grant is not None and grant.credential_id:
            await run_in_threadpool(self._lab.people.revoke, grant.credential_id)
        answer = json_answer({"message": "signed out"})
        answer.delete_cookie(COOKIE, **_COOKIE)
        return answer

    async def _own_credentials(self, request: Request) -> Response:
        grant = _passed(request).grant
        return json_answer(
            self._rows(lambda one: grant is not None and one.person == grant.person and one.kind in ("token", "link"))
        )

    async def _new_token(self, request: Request) -> Response:
        body = await _body(request, TokenBody)
        grant = _passed(request).grant
        role = _roles(grant).get(body.workspace)
        if grant is None or role is None:
            raise RequestError(404, "no_such_workspace", "there is no such workspace, or you are no member of it")
        if ROLES.index(body.role) > ROLES.index(role):
            raise RequestError(403, "not_allowed", f"you may only be a {role} there, and so may your token")
        parent = self._parent(grant)
        secret, made = await run_in_threadpool(
            lambda: self._lab.people.issue(
                "token",
                grant.person,
                body.days * 86400,
                workspace=body.workspace,
                role=body.role,
                parent=parent,
                label=body.label,
            )
        )
        return json_answer({"id": made.id, "token": secret})

    async def _revoke_own(self, request: Request) -> Response:
        grant = _passed(request).grant
        return await self._revoke(request, lambda one: grant is not None and one.person == grant.person)

    async def _links(self, request: Request) -> Response:
        workspace = _passed(request).workspace
        return json_answer(self._rows(lambda one: one.kind == "link" and one.workspace == workspace))

    async def _new_link(self, request: Request) -> Response:
        body = await _body(request, LinkBody)
        passed = _passed(request)
        grant, workspace = passed.grant, passed.workspace or ""
        home = self._lab.home(workspace)
        only: Subject
        if body.trial_id is not None and body.experiment_id is None:
            await run_in_threadpool(home.trial(body.trial_id).read_record)
            only, view = ("trial", body.trial_id), f"trials/{body.trial_id}"
        elif body.experiment_id is not None and body.trial_id is None:
            await run_in_threadpool(home.experiment(body.experiment_id).read)
            only, view = ("report", body.experiment_id), f"experiments/{body.experiment_id}/report"
        else:
            words = "a link opens a trial, or the report of an experiment: give trial_id or experiment_id"
            raise RequestError(400, "bad_value", words)
        secret, made = await run_in_threadpool(
            lambda: self._lab.people.issue(
                "link",
                grant.person if grant else "",
                body.days * 86400,
                workspace=workspace,
                role="reader",
                only=only,
                label=body.label,
            )
        )
        address = f"{self._site.url}/w/{workspace}/#token={secret}/{view}"
        return json_answer({"id": made.id, "address": address})

    async def _revoke_link(self, request: Request) -> Response:
        workspace = _passed(request).workspace
        return await self._revoke(request, lambda one: one.kind == "link" and one.workspace == workspace)

    async def _people(self, request: Request) -> Response:
        workspace = _passed(request).workspace or ""
        members = self._lab.people.read().members.get(workspace, {})
        return json_answer({"members": members, "credentials": self._rows(lambda one: one.workspace == workspace)})

    async def _set_role(self, request: Request) -> Response:
        body = await _body(request, MemberBody)
        workspace = _passed(request).workspace or ""
        await run_in_threadpool(self._lab.people.set_role, workspace, body.person, body.role, keeps_owner=True)
        done = f"{body.person} is a {body.role} of {workspace}" if body.role else f"{body.person} has left {workspace}"
        return json_answer({"message": done})

    async def _invite(self, request: Request) -> Response:
        body = await _body(request, InvitationBody)
        workspace = _passed(request).workspace or ""
        secret, made = await run_in_threadpool(
            lambda: self._lab.people.issue("invitation", body.person, INVITATION_S, workspace=workspace, role=body.role)
        )
        return json_answer({"id": made.id, "address": invitation_address(self._site.url, secret)})

    async def _revoke_any(self, request: Request) -> Response:
        workspace = _passed(request).workspace
        return await self._revoke(request, lambda one: one.workspace == workspace)

    async def _revoke(self, request: Request, may: Callable[[Credential], bool]) -> Response:
        credential_id = request.path_params["credential_id"]
        found = self._lab.people.read().by_id(credential_id)
        if found is None or not may(found):
            raise RequestError(404, "no_such_token", "there is no such token, link or invitation of yours")
        await run_in_threadpool(self._lab.people.revoke, found.id)
        return json_answer({"message": f"revoked {found.id}"})

    def _rows(self, wanted: Callable[[Credential], bool]) -> list[CredentialRow]:
        now = time.time()
        people = self._lab.people.read()
        return [
            CredentialRow(
                one.id,
                one.kind,
                one.person,
                one.created,
                one.expires,
                one.workspace,
                one.role,
                one.trial_id,
                one.experiment_id,
                one.label,
                self._last_uses.of(one.id),
            )
            for one in people.credentials.values()
            if wanted(one) and people.holds(one, now)
        ]

    def _parent(self, grant: Grant) -> str:
        """Returns what a new token ends with: the token that has made it. A session ends, and its tokens stay."""
        found = self._lab.people.read().by_id(grant.credential_id)
        return "" if found is None or not (found.parent or found.kind == "token") else found.id


def _passed(request: Request) -> Passed:
    passed: Passed = request.state.passed
    return passed


def _roles(grant: Grant | None) -> dict[str, Role]:
    return {} if grant is None else grant.roles


def _refusal_page(error: RequestError) -> Response:
    """Returns a page for a person, whom a provider has led here."""
    problem = error.failure.error
    words = html.escape(f"{problem.message}. {problem.hint}")
    page = f'<!doctype html><title>Core SDK</title><p>{words}</p><p><a href="/">Back</a></p>'
    return HTMLResponse(page, error.status)


async def _body(request: Request, kind: type[_T]) -> _T:
    return json_decoder(kind)(await read_json(request) or b"{}")
