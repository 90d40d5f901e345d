"""The door: finds who asks, decides once whether they may, and hands the request on to what answers it.

Whoever asks brings a secret of 256 bits as a bearer, or has a ticket for one file. Nobody is told apart from somebody
whose token has been revoked, and a workspace of which one is no member from one that does not exist.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Message, Receive, Scope, Send

from core_sdk._home import Home
from core_sdk._interfaces.lab.folder import NAME, Lab
from core_sdk._interfaces.lab.people import Credential
from core_sdk._interfaces.lab.roles import Grant, Verdict, judge
from core_sdk._interfaces.lab.routes import GuardedRoute, Table, WriterRoutes, of_workspace, of_writers
from core_sdk._interfaces.lab.workspaces import Workspaces
from core_sdk._interfaces.server.app import FILES, PREFIX, answer_failure, confined, json_answer
from core_sdk._interfaces.server.asker import Asker, set_asker
from core_sdk._interfaces.server.connections import vouch
from core_sdk._interfaces.server.errors import RequestError
from core_sdk._interfaces.server.pages import PageFile, answer_with_file
from core_sdk._interfaces.server.security import ACTION_HEADER, TICKET_S

_WORKSPACE = re.compile(rf"/w/({NAME})(/.*)?", re.DOTALL)
_SESSION_S = 30 * 86400.0
_WATCH_S = 0.5
"""The longest time for which a stream goes on that is not allowed any more."""


@dataclass(frozen=True)
class Passed:
    """A request that may be answered."""

    grant: Grant | None
    entry: GuardedRoute
    workspace: str | None


@dataclass(eq=False)
class _Running:
    """A request that is being answered."""

    may_go_on: Callable[[], bool]
    task: asyncio.Task[Any]
    is_ended: bool = False


class Door:
    """An ASGI application.

    `hosts` are the names with their ports, as browsers write them in `Host`, under which the lab is reached.
    """

    def __init__(
        self,
        lab: Lab,
        page: Mapping[str, PageFile],
        hosts: Iterable[str],
        writer_routes: WriterRoutes | None = None,
    ) -> None:
        self._lab = lab
        self._page = page
        self._hosts = frozenset(host.lower() for host in hosts)
        self.workspaces = Workspaces(lab, writer_routes)
        own = [
            GuardedRoute(f"{PREFIX}/session", "GET", "reader", is_of_nothing=True, endpoint=self._answer_session),
            GuardedRoute(f"{PREFIX}/ticket", "GET", "reader", is_of_nothing=True, endpoint=self._answer_ticket),
        ]
        programs = of_writers(writer_routes(Home(lab.root))) if writer_routes else []
        self.of_workspaces = Table([*own, *of_workspace(), *programs])
        self.of_lab = Table([GuardedRoute("/health", "GET", "nothing", endpoint=self._answer_health)])
        self._ticket_key = secrets.token_bytes(32)
        self._running: set[_Running] = set()
        self._app = ExceptionMiddleware(self._answer, {Exception: answer_failure, HTTPException: answer_failure})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["app"] = self
            await self._app(scope, receive, confined(send))

    async def watch(self) -> None:
        """Ends streams and downloads that are not allowed any more, until it is canceled."""
        while True:
            await asyncio.sleep(_WATCH_S)
            for one in [*self._running]:
                if not one.is_ended and not one.may_go_on():
                    one.is_ended = True
                    one.task.cancel()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        found = _WORKSPACE.fullmatch(scope["path"])
        workspace, path = (found[1], found[2] or "") if found else (None, scope["path"])
        if path != "/health":
            self._check_address(request.headers)
        if (response := self._page_file(request, workspace, path)) is not None:
            await response(scope, receive, send)
            return
        passed = self._pass(request, workspace, path)
        if passed.grant is not None:
            vouch(scope)
        request.state.passed = passed
        if passed.entry.endpoint is not None:
            response = await passed.entry.endpoint(request)
            await response(scope, receive, send)
            return
        await self._hand_on(passed, scope, receive, send)

    def _page_file(self, request: Request, workspace: str | None, path: str) -> Response | None:
        """Returns a file of the page, which is the same for everybody, or None if the address is of none."""
        if workspace is None or request.method not in ("GET", "HEAD"):
            return None
        if path == "":
            return RedirectResponse(f"/w/{workspace}/")
        file = self._page.get(path)
        return None if file is None else answer_with_file(path, file, request.headers, is_known=False)

    def _pass(self, request: Request, workspace: str | None, path: str) -> Passed:
        """Returns the request's route and who asks. Raises `RequestError` if it may not be answered."""
        entries = (self.of_lab if workspace is None else self.of_workspaces).find(path)
        method = "GET" if request.method == "HEAD" else request.method
        fitting = [one for one in entries if one.method == method]
        grant = self._grant(request, path)
        for entry in fitting or entries:  # should an address be of several routes, all must allow it
            _check(judge(grant, entry.need, workspace, _trial_id(entry, path, grant)))
        if not fitting:
            if grant is None:
                raise _refusal("unknown_asker")
            if workspace is not None:
                _check(judge(grant, "reader", workspace, grant.trial_id))
            raise HTTPException(405 if entries else 404)
        entry = fitting[0]
        if method != "GET" and not entry.is_of_records and _only(request.headers, ACTION_HEADER) != "1":
            raise RequestError(403, "no_action_header", f"{method} needs the header X-Core-SDK-Action: 1")
        return Passed(grant, entry, workspace)

    def _check_address(self, headers: Headers) -> None:
        """Raises `RequestError` if the request is for another host, from another web page or for a service worker."""
        if headers.getlist("service-worker"):
            clear = {"clear-site-data": '"storage"'}
            raise RequestError(403, "no_service_worker", "the page has no service worker", headers=clear)
        host = (_only(headers, "host") or "").lower()
        if host not in self._hosts:
            raise RequestError(403, "foreign_host", "the request is for another host")
        if any(origin.lower() not in (f"http://{host}", f"https://{host}") for origin in headers.getlist("origin")):
            raise RequestError(403, "foreign_origin", "the request comes from another web page")

    def _grant(self, request: Request, path: str) -> Grant | None:
        """Returns what the one who asks may do, or None if they are not known."""
        credential = self._credential(request, path)
        return None if credential is None else self._lab.people.read().grant(credential)

    def _credential(self, request: Request, path: str) -> Credential | None:
        people, now = self._lab.people.read(), time.time()
        kind, _, secret = (_only(request.headers, "authorization") or "").partition(" ")
        if kind.lower() == "bearer":
            return people.find(secret.strip(), now)
        ticket = request.query_params.get("ticket") if path.endswith(FILES) else None
        if ticket is None or request.method not in ("GET", "HEAD"):
            return None
        end, _, rest = ticket.partition("-")
        credential_id = rest.partition("-")[0]
        if not re.fullmatch(r"[0-9]{1,15}", end) or int(end) < time.monotonic():
            return None
        if not hmac.compare_digest(ticket.encode(errors="surrogatepass"), self._ticket(end, credential_id).encode()):
            return None
        found = people.by_id(credential_id)
        return found if found is not None and people.holds(found, now) else None

    def _ticket(self, end: str, credential_id: str) -> str:
        signed = f"{end}-{credential_id}"
        return f"{signed}-{hmac.new(self._ticket_key, signed.encode(), hashlib.sha256).hexdigest()}"

    async def _hand_on(self, passed: Passed, scope: Scope, receive: Receive, send: Send) -> None:
        assert passed.workspace is not None  # noqa: S101  (all other routes have an endpoint)
        assert passed.grant is not None  # noqa: S101  (no route of a workspace is for nobody)
        workspace = await self.workspaces.get(passed.workspace)
        if workspace is None:
            raise _refusal("unknown_workspace")
        set_asker(Asker(passed.grant.person, judge(passed.grant, "writer", passed.workspace) == "yes"))
        inner = {**scope, "root_path": f"/w/{passed.workspace}"}
        app = workspace.writers if passed.entry.is_of_records else workspace.app
        sending = _Sending(send)
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  (a server runs each request in a task)
        running = _Running(lambda: self._may_go_on(passed), task)
        self._running.add(running)
        try:
            await app(inner, receive, sending)
        except asyncio.CancelledError:
            if not running.is_ended:
                raise
            running.task.uncancel()
            await sending.end_early()
        finally:
            self._running.discard(running)

    def _may_go_on(self, passed: Passed) -> bool:
        grant = passed.grant
        if grant is None or not grant.credential_id:
            return True
        people, now = self._lab.people.read(), time.time()
        credential = people.by_id(grant.credential_id)
        if credential is None or not people.holds(credential, now):
            return False
        role = people.grant(credential).roles.get(passed.workspace or "")
        return role is not None and role == grant.roles.get(passed.workspace or "")

    async def _answer_health(self, _request: Request) -> Response:
        return json_answer({"status": "ok"})

    async def _answer_session(self, request: Request) -> Response:
        """Gives a page a key in place of the token with which it was opened: it ends with that token."""
        passed: Passed = request.state.passed
        people = self._lab.people
        credential = people.read().by_id(passed.grant.credential_id) if passed.grant else None
        if credential is None:
            return json_answer({"key": ""})
        key, _ = people.issue(
            "session",
            credential.person,
            _SESSION_S,
            workspace=credential.workspace,
            role=credential.role,
            trial_id=credential.trial_id,
            parent=credential.id,
        )
        return json_answer({"key": key})

    async def _answer_ticket(self, request: Request) -> Response:
        passed: Passed = request.state.passed
        credential_id = passed.grant.credential_id if passed.grant else ""
        return json_answer({"ticket": self._ticket(str(int(time.monotonic()) + TICKET_S), credential_id)})


class _Sending:
    """Sends an answer, and knows how to end it before its time."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._has_begun = self._has_length = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._has_begun = True
            self._has_length = "content-length" in Headers(raw=message["headers"])
        await self._send(message)

    async def end_early(self) -> None:
        """Ends a stream; an answer whose length was told is cut off by the server, since it stays incomplete."""
        if not self._has_begun:
            raise _refusal("unknown_asker")
        if not self._has_length:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def _check(verdict: Verdict) -> None:
    if verdict != "yes":
        raise _refusal(verdict)


def _refusal(verdict: Verdict) -> RequestError:
    match verdict:
        case "unknown_asker":
            hint = "Sign in again, or give the token of a program as `Authorization: Bearer TOKEN`."
            challenge = {"www-authenticate": "Bearer"}
            words = "this needs somebody who has signed in, or a token that is valid"
            return RequestError(401, "no_token", words, hint, headers=challenge)
        case "unknown_workspace":
            return RequestError(404, "no_such_workspace", "there is no such workspace, or you are no member of it")
        case "not_in_a_lab":
            words = "a lab's server starts and ends no training, and reaches no storage outside of its folder"
            return RequestError(403, "not_in_a_lab", words, "Do it where the training runs, or its checkpoints lie.")
        case _:
            return RequestError(403, "not_allowed", "your role does not allow this", "An owner of the workspace may.")


def _trial_id(entry: GuardedRoute, path: str, grant: Grant | None) -> int | None:
    """Returns the only trial that the answer is about; None if it is about others, too."""
    if entry.is_of_nothing:
        return None if grant is None else grant.trial_id
    found = entry.pattern.fullmatch(path) if entry.is_of_one_trial else None
    text = found["trial_id"] if found else ""
    return int(text) if re.fullmatch(r"[1-9][0-9]{0,17}", text) else None


def _only(headers: Headers, name: str) -> str | None:
    """Returns the header's value, or None unless it comes exactly once."""
    found = headers.getlist(name)
    return found[0] if len(found) == 1 else None
