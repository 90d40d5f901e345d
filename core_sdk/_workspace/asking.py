"""A workspace as a `View`: the sibling of the index that asks a server."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, cast

from core_sdk._home.opening import HomeElsewhere
from core_sdk._home.pushes import find_login
from core_sdk._home.view import View
from core_sdk._workspace.connection import WorkspaceConnection
from core_sdk._workspace.questions import QUESTIONS


@contextlib.contextmanager
def open_workspace(workspace: str) -> Iterator[View]:
    """Opens a view of a workspace, by its address or the name of a login. One thread may use it.

    Each question is answered as of its own moment. Raises `UnknownWorkspaceError`; questions raise `WorkspaceError`,
    too.
    """
    found = find_login(workspace)
    with WorkspaceConnection(found.url, found.token) as connection:
        yield cast(View, _AskedView(connection))


def home_of_workspace(workspace: str) -> HomeElsewhere:
    """Returns the home that is a workspace, by its address or the name of a login. Raises `UnknownWorkspaceError`."""
    address = find_login(workspace).url
    return HomeElsewhere(address, lambda: open_workspace(address))


class _AskedView:
    """Has the questions of `View` as methods."""

    reports = View.reports

    def __init__(self, connection: WorkspaceConnection) -> None:
        self._connection = connection

    def refresh(self, *, only_open: bool = False) -> object:
        """Does nothing: the server looks at what is new before it answers."""

    def refresh_part(self, within_s: float) -> bool:
        return True

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in QUESTIONS:
            raise AttributeError(name)
        question = QUESTIONS[name]

        def ask(*arguments: object, **keywords: object) -> Any:
            return question.decoded(self._connection.ask(name, question.encoded(arguments, keywords)))

        return ask
