"""The table of all routes of a lab, with what each needs. What is not in it is not answered.

The routes of a workspace come from the application that serves it: whoever reads may ask, and whoever writes may act.
A route that is new there is so in this table without a further line.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Mounted
from starlette.routing import compile_path

from core_sdk._home import Home
from core_sdk._interfaces.lab.roles import Grant, Need, Subject, judge
from core_sdk._interfaces.server.app import PREFIX
from core_sdk._interfaces.server.route import Action, Route
from core_sdk._interfaces.server.routes.table import ROUTES
from core_sdk._workspace.actions.asker import Asker
from core_sdk._workspace.routes import ReaderRoute

Endpoint = Callable[[Request], Awaitable[Response]]
WriterRoutes = Callable[[Home], Sequence[Mounted]]
"""Makes routes of a home, at addresses below `/api/v1`, that only writers may call."""

OWN = ("/home",)
"""The questions that the door answers itself."""

LINKED = (
    "/trials/{trial_id}",
    "/trials/{trial_id}/attempts",
    "/trials/{trial_id}/requests",
    "/trials/{trial_id}/time",
    "/trials/{trial_id}/metrics",
    "/trials/{trial_id}/system",
    "/trials/{trial_id}/logs",
    "/trials/{trial_id}/media",
    "/trials/{trial_id}/media/{file_name}",
    "/trials/{trial_id}/configuration",
)
"""The questions that are about one trial only, which a link to that trial answers."""

REPORT = "/experiments/{experiment_id}/report"
"""The question that a link to the report of an experiment answers."""

NOT_IN_A_LAB = (
    # Records name storages by their addresses, and whoever writes could name one that only the server reaches.
    "/checkpoints/{storage_id}/actions/verify",
    "/checkpoints/{storage_id}/actions/delete",
    "/experiments/{experiment_id}/retention",
    # They tell about the machine of the server, and about other homes.
    "/slots",
    "/queue",
)
"""What a page over a home of one's own does, and a lab does for nobody."""

REFUSED = tuple(re.sub(r"^/|/{\w+}|/actions", "", path) for path in NOT_IN_A_LAB)
"""The same as the page calls it, such as `experiments/pause`."""


@dataclass(frozen=True)
class GuardedRoute:
    """A route and what it needs."""

    path: str
    """Below `/w/NAME` for a route of a workspace, with its ids in braces."""
    method: str
    need: Need
    subject: Literal["trial", "report"] | None = None
    """What it tells about, by the number in its path, if it tells about nothing else."""
    is_of_nothing: bool = False
    """Whether it tells about no trial, so that whoever has a link may call it."""
    endpoint: Endpoint | None = None
    """The function that answers; None if the application of the workspace does."""
    is_of_records: bool = False
    """Whether it is called again and again by programs that record, and not by people."""

    @functools.cached_property
    def pattern(self) -> re.Pattern[str]:
        return compile_path(self.path)[0]

    def ids_in(self, path: str) -> dict[str, str]:
        found = self.pattern.fullmatch(path)
        return found.groupdict() if found else {}

    def subject_in(self, path: str, grant: Grant | None) -> Subject | None:
        """Returns the only thing that the answer is about; None if it is about others, too."""
        if self.is_of_nothing:
            return None if grant is None else grant.only
        if self.subject is None:
            return None
        text = self.ids_in(path)["trial_id" if self.subject == "trial" else "experiment_id"]
        return (self.subject, int(text)) if re.fullmatch(r"[1-9][0-9]{0,17}", text) else None


@dataclass(frozen=True)
class Passed:
    """A request that may be answered."""

    grant: Grant | None
    route: GuardedRoute
    workspace: str | None
    ids: dict[str, str]
    """Those in the address."""

    @property
    def asker(self) -> Asker:
        """The one who asks, as the application of the workspace knows them."""
        role = "" if self.grant is None else self.grant.roles.get(self.workspace or "")
        return Asker(self.person, judge(self.grant, "writer", self.workspace) == "yes", role == "owner")

    @property
    def person(self) -> str:
        return self.grant.person if self.grant else ""


class RouteTable:
    """Finds the routes of an address."""

    def __init__(self, routes: Iterable[GuardedRoute]) -> None:
        self.routes = tuple(routes)

    def find(self, path: str) -> list[GuardedRoute]:
        return [one for one in self.routes if one.pattern.fullmatch(path)]


def of_workspace() -> list[GuardedRoute]:
    """Returns the routes that the application of a workspace answers."""
    own = [GuardedRoute(f"{PREFIX}/{name}", "GET", "reader") for name in ("events", "openapi.json")]
    return own + [
        GuardedRoute(
            PREFIX + one.path,
            one.method,
            _need(one),
            subject=_subject(one),
        )
        for one in ROUTES
        if one.path not in OWN
    ]


def _subject(route: Route) -> Literal["trial", "report"] | None:
    if route.method != "GET":
        return None
    return "report" if route.path == REPORT else "trial" if route.path in LINKED else None


def _need(route: Route) -> Need:
    if route.path in NOT_IN_A_LAB:
        return "another_server"
    return "writer" if isinstance(route, Action) else "reader"


def of_writers(routes: Iterable[Mounted]) -> list[GuardedRoute]:
    """Returns the entries of routes that programs call which record into a workspace, or ask it questions."""
    return [
        GuardedRoute(
            PREFIX + one.path, method, "reader" if isinstance(one, ReaderRoute) else "writer", is_of_records=True
        )
        for one in routes
        for method in sorted(one.methods or ())
        if method != "HEAD"
    ]
