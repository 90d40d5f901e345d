"""The applications of the workspaces, each of which is opened when it is first asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from starlette.concurrency import run_in_threadpool
from starlette.routing import Mount, Router
from starlette.routing import Route as Mounted
from starlette.types import ASGIApp

from core_sdk._interfaces.lab.folder import Lab
from core_sdk._interfaces.lab.routes import WriterRoutes
from core_sdk._interfaces.server.app import PREFIX, App
from core_sdk._interfaces.server.security import PassedGate
from core_sdk._interfaces.server.shared_view import SharedView

MOST_STREAMS = 2000


class OpenWorkspace:
    """A home that is served: the application of its page, and the routes of programs that record."""

    def __init__(self, shared: SharedView, writer_routes: Sequence[Mounted]) -> None:
        self.shared = shared
        self.app = App(shared, PassedGate(), {}, MOST_STREAMS)
        self.writers: ASGIApp = Router([Mount(PREFIX, routes=writer_routes)], redirect_slashes=False)


class Workspaces:
    """All workspaces that are open. The server's loop calls it."""

    def __init__(self, lab: Lab, writer_routes: WriterRoutes | None = None) -> None:
        self._lab = lab
        self._writer_routes = writer_routes
        self._open: dict[str, OpenWorkspace] = {}
        self._opening = asyncio.Lock()

    @property
    def open(self) -> dict[str, OpenWorkspace]:
        return self._open

    async def get(self, name: str) -> OpenWorkspace | None:
        """Returns the workspace, or None if the lab has none of this name."""
        found = self._open.get(name)
        if found is not None:
            return found
        async with self._opening:
            if name not in self._open:
                if not self._lab.has_workspace(name):
                    return None
                self._open[name] = await run_in_threadpool(self._opened, name)
            return self._open[name]

    def _opened(self, name: str) -> OpenWorkspace:
        home = self._lab.home(name)
        return OpenWorkspace(
            SharedView(home, reaches_outside=False), self._writer_routes(home) if self._writer_routes else ()
        )

    async def end(self) -> None:
        """Ends the streams of all open pages."""
        for one in self._open.values():
            await one.app.end()

    def close(self) -> None:
        for one in self._open.values():
            one.shared.close()
