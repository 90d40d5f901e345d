"""The door: finds who asks, decides once whether they may, and hands the request on to what answers it.

Whoever asks brings a secret of 256 bits: programs and pages as a bearer, and a browser that reaches the lab by https as
a cookie. The page of one's own home has no cookie, since browsers give cookies to all ports of a host, and so to
servers of other users. A lab is alone at its address. There a cookie with the prefix `__Host-` goes to nobody else, no
script can read it, other sites cannot make a browser send it, and it survives a reload. By plain http, within one
machine, there is no cookie. A ticket stands for the one who has got it where a browser saves a file. A proxy that is
named may say who asks; the header that says so is ignored from everybody else.

Nobody cannot be told from somebody whose token was revoked, and a workspace of which one is no member not from one that
does not exist.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
import re
import secrets
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Message, Receive, Scope, Send

from core_sdk._ground.files import explained
from core_sdk._ground.version import __version__
from core_sdk._home import Home
from core_sdk._interfaces.lab.audit import AuditLog
from core_sdk._interfaces.lab.figures import CONTENT_TYPE, ServerFigures
from core_sdk._interfaces.lab.folder import NAME, Lab
from core_sdk._interfaces.lab.last_uses import LastUses
from core_sdk._interfaces.lab.people import Credential
from core_sdk._interfaces.lab.people_routes import COOKIE, PeopleRoutes
from core_sdk._interfaces.lab.roles import Grant, Verdict, judge
from core_sdk._interfaces.lab.routes import (
    REFUSED,
    GuardedRoute,
    Passed,
    RouteTable,
    WriterRoutes,
    of_workspace,
    of_writers,
)
from core_sdk._interfaces.lab.site import Site
from core_sdk._interfaces.lab.workspaces import Workspaces
from core_sdk._interfaces.server.app import FILES, PREFIX, answer_failure, confined, json_answer
from core_sdk._interfaces.server.connections import vouch
from core_sdk._interfaces.server.errors import RequestError
from core_sdk._interfaces.server.pages import PageFile, answer_with_file
from core_sdk._interfaces.server.routes.home import HomeAnswer, home
from core_sdk._interfaces.server.security import ACTION_HEADER, TICKET_S, only
from core_sdk._workspace.actions.asker import set_asker
from core_sdk.errors import CoreSDKError

logger = logging.getLogger("core_sdk.server")

_WORKSPACE = re.compile(rf"/w/({NAME})(/.*)?", re.DOTALL)
_WATCH_S = 0.5
"""The longest time for which a stream goes on that is not allowed any more."""
MOST_REQUESTS = 64
"""The requests and open pages that one person may have at a time."""
_LAB_PAGE = "/lab.html"
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"))


@dataclass
class _Passing:
    """What is known of a request so far."""

    sending: _Sending
    grant: Grant | None = None
    passed: Passed | None = None
    has_bearer: bool = False
    is_page: bool = False
    signed_in: str = ""
    """The person for whom it has made a session, or whom a provider has named."""


@dataclass(eq=False)
class _Running:
    """A request that is being answered."""

    passed: Passed
    task: asyncio.Task[Any]
    is_ended: bool = False


class Door:
    """An ASGI application. The page of the lab lies beside that of a workspace, as `/lab.html`."""

    def __init__(
        self,
        lab: Lab,
        site: Site,
        page: Mapping[str, PageFile],
        writer_routes: WriterRoutes | None = None,
    ) -> None:
        self._lab = lab
        self._site = site
        self._page = page
        self._lab_page = {**page, "/": page[_LAB_PAGE]}
        self.workspaces = Workspaces(lab, writer_routes)
        self._log = AuditLog(lab.log)
        self._last_uses = LastUses(lab.last_uses)
        self._figures = ServerFigures()
        people = PeopleRoutes(lab, site, self._last_uses)
        own = [
            GuardedRoute(f"{PREFIX}/ticket", "GET", "reader", is_of_nothing=True, endpoint=self._answer_ticket),
            GuardedRoute(f"{PREFIX}/home", "GET", "reader", is_of_nothing=True, endpoint=self._answer_home),
        ]
        programs = of_writers(writer_routes(Home(lab.root))) if writer_routes else []
        self.of_workspaces = RouteTable([*own, *people.of_workspaces(), *of_workspace(), *programs])
        self.of_lab = RouteTable(
            [
                GuardedRoute("/health", "GET", "nothing", endpoint=self._answer_health),
                GuardedRoute("/metrics", "GET", "metrics", endpoint=self._answer_metrics),
                *people.of_lab(),
            ]
        )
        self._ticket_key = secrets.token_bytes(32)
        self._running: set[_Running] = set()
        self._num_of = Counter[str]()
        """The requests of each person that are being answered."""
        self._app = ExceptionMiddleware(self._answer, {Exception: answer_failure, HTTPException: answer_failure})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        scope["app"] = self
        begun = time.monotonic()
        sending = _Sending(confined(send))
        passing = _Passing(sending)
        scope.setdefault("state", {})["passing"] = passing
        try:
            await self._app(scope, receive, sending)
        finally:
            self._note(scope, passing, sending.status, time.monotonic() - begun)

    def _note(self, scope: Scope, passing: _Passing, status: int, seconds: float) -> None:
        """Counts the request, and writes down who has changed something or was refused it."""
        passed = passing.passed
        route = passed.route.path if passed else "page" if passing.is_page else "refused"
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._figures.count(route, method, status, seconds)
        is_question = method in ("GET", "HEAD") or (passed is not None and passed.route.need == "reader")
        is_unlogged = passing.is_page or is_question or (passing.grant is None and passed is None)
        if is_unlogged and not passing.signed_in:
            return
        grant = passing.grant
        client = scope.get("client")
        write = self._log.write_seldom if passed is not None and passed.route.is_of_records else self._log.write
        try:
            write(
                passing.signed_in or (grant.person if grant else ""),
                (grant.credential_id or "proxy") if grant else "",
                f"{method} {scope['path']}",
                status,
                client[0] if client else "",
            )
        except OSError as error:
            logger.error("the log of who did what cannot be written: %s", explained(error).strerror)

    async def watch(self) -> None:
        """Ends streams and downloads that are not allowed any more, until it is canceled."""
        while True:
            await asyncio.sleep(_WATCH_S)
            try:
                for one in [*self._running]:
                    if not one.is_ended and not self._may_go_on(one.passed):
                        one.is_ended = True
                        one.task.cancel()
                people = self._lab.people.read()
                await run_in_threadpool(self._last_uses.write_if_due, people.ids)
            except (OSError, CoreSDKError) as error:  # no request is let pass meanwhile either
                logger.error("%s", error)

    def write_last_uses(self) -> None:
        """Writes down when tokens were used last, when the server ends."""
        with contextlib.suppress(OSError, CoreSDKError):
            self._last_uses.write(self._lab.people.read().ids)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        passing: _Passing = request.state.passing
        found = _WORKSPACE.fullmatch(scope["path"])
        workspace, path = (found[1], found[2] or "") if found else (None, scope["path"])
        if path != "/health" or workspace is not None:
            self._check_address(request)
        if (response := self._page_file(request, workspace, path)) is not None:
            passing.is_page = True
            await response(scope, receive, send)
            return
        passed = passing.passed = self._pass(request, workspace, path)
        if passed.grant is not None:
            vouch(scope)
            self._check_load(passed.person)
        running = _Running(passed, _current_task())
        self._running.add(running)
        self._num_of[passed.person] += 1
        try:
            await self._respond(request, passed, receive, send)
        except asyncio.CancelledError:
            if not running.is_ended:
                raise
            running.task.uncancel()
            await passing.sending.end_early()
        finally:
            self._running.discard(running)
            self._num_of -= Counter((passed.person,))  # which forgets whoever has none

    async def _respond(self, request: Request, passed: Passed, receive: Receive, send: Send) -> None:
        if passed.route.endpoint is None:
            await self._hand_on(passed, request.scope, receive, send)
            return
        request.state.passed = passed
        request.scope["path_params"] = passed.ids
        response = await passed.route.endpoint(request)
        await response(request.scope, receive, send)

    def _check_load(self, person: str) -> None:
        """Raises `RequestError` if one person has more requests open than anybody needs."""
        if self._num_of[person] >= MOST_REQUESTS:
            words = f"you have {MOST_REQUESTS} requests and pages open already"
            raise RequestError(429, "too_many_requests", words, "Close some of them.", headers={"retry-after": "1"})

    def _page_file(self, request: Request, workspace: str | None, path: str) -> Response | None:
        """Returns a file of a page, which is the same for everybody, or None if the address is of none."""
        if request.method not in ("GET", "HEAD"):
            return None
        if path == "":
            return RedirectResponse(f"/w/{workspace}/")
        file = (self._lab_page if workspace is None else self._page).get(path)
        return None if file is None else answer_with_file(path, file, request.headers, is_known=False)

    def _pass(self, request: Request, workspace: str | None, path: str) -> Passed:
        """Returns the request's route and who asks. Raises `RequestError` if it may not be answered."""
        routes = (self.of_lab if workspace is None else self.of_workspaces).find(path)
        method = "GET" if request.method == "HEAD" else request.method
        fitting = [one for one in routes if one.method == method]
        # What is for everybody asks for no proof: a browser comes back from a provider as if another site had sent it.
        is_for_all = bool(fitting) and all(one.need == "nothing" for one in fitting)
        grant = request.state.passing.grant = None if is_for_all else self._grant(request, path)
        for route in fitting or routes:  # should an address be of several routes, all must allow it
            _check(judge(grant, route.need, workspace, route.subject_in(path, grant)))
        if not fitting:
            if grant is None:
                raise refusal("unknown_asker")
            if workspace is not None:
                _check(judge(grant, "reader", workspace, grant.only))
            raise HTTPException(405 if routes else 404)
        route = fitting[0]
        if method != "GET" and not self._is_meant(request, route):
            raise RequestError(403, "no_action_header", f"{method} needs the header X-Core-SDK-Action: 1")
        return Passed(grant, route, workspace, route.ids_in(path))

    def _is_meant(self, request: Request, route: GuardedRoute) -> bool:
        """Returns whether a request that changes something is one that no page of another site can cause."""
        has_bearer = request.state.passing.has_bearer
        return (route.is_of_records and has_bearer) or only(request.headers, ACTION_HEADER) == "1"

    def _check_address(self, request: Request) -> None:
        """Raises `RequestError` if the request is for another host, from another web page or for a service worker."""
        headers = request.headers
        if self._site.only_by_proxies and not self._is_from_proxy(request):
            raise RequestError(403, "not_by_proxy", "this address is for the proxy of the lab only")
        if headers.getlist("service-worker"):
            clear = {"clear-site-data": '"storage"'}
            raise RequestError(403, "no_service_worker", "the page has no service worker", headers=clear)
        host = (only(headers, "host") or "").lower()
        if host not in self._site.hosts:
            raise RequestError(
                403, "foreign_host", "the request is for another host", f"The lab is at {self._site.url}/"
            )
        if any(origin.lower() not in (f"http://{host}", f"https://{host}") for origin in headers.getlist("origin")):
            raise RequestError(403, "foreign_origin", "the request comes from another web page")

    def _is_from_proxy(self, request: Request) -> bool:
        return request.client is not None and self._site.is_proxy(request.client.host)

    def _grant(self, request: Request, path: str) -> Grant | None:
        """Returns what the one who asks may do, or None if they are not known."""
        credential = self._credential(request, path)
        if credential is not None:
            self._last_uses.note(credential.id)
            return self._lab.people.read().grant(credential)
        if request.state.passing.has_bearer or not self._site.person_header or not self._is_from_proxy(request):
            return None
        person = only(request.headers, self._site.person_header) or ""
        _check_fetched_by_own_page(request.headers)
        return Grant(person, self._lab.people.read().roles_of(person)) if person else None

    def _secret(self, request: Request) -> str:
        """Returns what the request brings as its proof, or nothing."""
        kind, _, bearer = (only(request.headers, "authorization") or "").partition(" ")
        if kind.lower() == "bearer" and bearer.strip():
            request.state.passing.has_bearer = True
            return bearer.strip()
        if self._site.is_secure and (cookie := request.cookies.get(COOKIE)):
            _check_fetched_by_own_page(request.headers)
            return cookie
        return ""

    def _credential(self, request: Request, path: str) -> Credential | None:
        people, now = self._lab.people.read(), time.time()
        if secret := self._secret(request):
            return people.find(secret, now)
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
            raise refusal("unknown_workspace")
        set_asker(passed.asker)
        app = workspace.writers if passed.route.is_of_records else workspace.app
        await app({**scope, "root_path": f"/w/{passed.workspace}"}, receive, send)

    def _may_go_on(self, passed: Passed) -> bool:
        """Returns whether a request that is being answered would be let pass now, too."""
        grant, workspace = passed.grant, passed.workspace
        if grant is None or workspace is None:
            return True
        people = self._lab.people.read()
        if not grant.credential_id:
            return people.roles_of(grant.person).get(workspace) == grant.roles.get(workspace)
        credential = people.by_id(grant.credential_id)
        if credential is None or not people.holds(credential, time.time()):
            return False
        return people.grant(credential).roles.get(workspace) == grant.roles.get(workspace)

    async def _answer_health(self, _request: Request) -> Response:
        """Says whether requests can be answered, to whoever asks."""
        try:
            self._lab.people.read()
            is_well = (self._lab.root / "workspaces").is_dir()
        except (OSError, CoreSDKError):
            is_well = False
        return json_answer({"status": "ok" if is_well else "failing"}, 200 if is_well else 503)

    async def _answer_metrics(self, _request: Request) -> Response:
        streams = sum(one.passed.route.path.endswith("/events") for one in self._running)
        gauges = {
            "core_sdk_streams": ("The pages that are open.", float(streams)),
            "core_sdk_requests_in_progress": ("The requests that are being answered.", float(len(self._running))),
            "core_sdk_workspaces": ("The workspaces of the lab.", float(len(self._lab.workspaces()))),
            "core_sdk_workspaces_open": ("The workspaces that are being served.", float(len(self.workspaces.open))),
        }
        return Response(self._figures.text(gauges), media_type=CONTENT_TYPE)

    async def _answer_home(self, request: Request) -> Response:
        """Says what a workspace holds.

        Nobody is told where the server keeps it, and a link tells of its trial or report only.
        """
        passed: Passed = request.state.passed
        name = passed.workspace or ""
        workspace = await self.workspaces.get(name)
        if workspace is None:
            raise refusal("unknown_workspace")
        set_asker(passed.asker)
        if passed.grant is not None and passed.grant.only is not None:
            return json_answer(HomeAnswer(name, __version__, 1, 0, 0, 0, [], False, False, None, list(REFUSED)))
        answer = await run_in_threadpool(home, workspace.shared)
        return json_answer(msgspec.structs.replace(answer, location=name, refuses=list(REFUSED)))

    async def _answer_ticket(self, request: Request) -> Response:
        passed: Passed = request.state.passed
        credential_id = passed.grant.credential_id if passed.grant else ""
        return json_answer({"ticket": self._ticket(str(int(time.monotonic()) + TICKET_S), credential_id)})


class _Sending:
    """Sends an answer, and knows how to end it before its time."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._has_length = False
        self.status = 0
        """That of the answer; 0 before it has begun."""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._has_length = "content-length" in Headers(raw=message["headers"])
        await self._send(message)

    async def end_early(self) -> None:
        """Ends a stream; an answer whose length was told is cut off by the server, since it stays incomplete."""
        if not self.status:
            raise refusal("unknown_asker")
        if not self._has_length:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def _check(verdict: Verdict) -> None:
    if verdict != "yes":
        raise refusal(verdict)


def refusal(verdict: Verdict) -> RequestError:
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


def _check_fetched_by_own_page(headers: Headers) -> None:
    """Raises `RequestError` if the browser says that another site has caused a request that it has vouched for."""
    if only(headers, "sec-fetch-site") not in (None, "same-origin", "none"):
        raise RequestError(403, "foreign_origin", "the request comes from another web page")


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101  (a server runs each request in a task)
    return task
