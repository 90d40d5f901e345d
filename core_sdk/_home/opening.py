"""Opens a view of a home: the index answers its questions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from core_sdk._home.folders import Home
from core_sdk.errors import WorkspaceError

if TYPE_CHECKING:
    from core_sdk._home.media import HomeMedia
    from core_sdk._home.rows import Reading
    from core_sdk._home.view import View


class HomeElsewhere(Home):
    """A home whose files lie on a server, so that it only answers the questions of a `View`.

    Whatever needs its files raises `WorkspaceError`.
    """

    def __init__(self, address: str, view: Callable[[], AbstractContextManager[View]]) -> None:
        """`view` opens a view of it."""
        self.address = address
        self.view = view

    @property
    def root(self) -> Path:
        raise WorkspaceError(self.address, "its files lie on its server, and this needs them")

    @root.setter
    def root(self, root: Path) -> None:
        raise AttributeError(root)


@contextlib.contextmanager
def open_view(
    home: Home,
    on_progress: Callable[[Reading], None] | None = None,
    media: HomeMedia | None = None,
    *,
    reads: bool = True,
    trial_id: int | None = None,
) -> Iterator[View]:
    """Opens a view for questions that belong together. Leave it soon: it holds a file open.

    A home that does not exist counts as empty. Two threads may not use the view at the same time. `on_progress` is
    called with the progress of reading the records, here and in `refresh`; an exception that it raises ends the
    reading. `media` may know event files already. With `reads=False` the caller reads the records by `refresh_part`.
    With `trial_id` only this trial is brought up to date, so that no question about another one is answered well.
    """
    if isinstance(home, HomeElsewhere):
        with home.view() as view:
            yield view
        return
    from core_sdk._home.index import Index  # a database, which most trainings do not need

    with Index(home, on_progress, media) as index:
        if reads:
            index.refresh(trial_id=trial_id)
        yield index
