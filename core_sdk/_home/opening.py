"""Opens a view of a home: the index answers its questions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from core_sdk._home.folders import Home
from core_sdk._home.media import HomeMedia
from core_sdk._home.rows import Reading
from core_sdk._home.view import View


@contextlib.contextmanager
def open_view(
    home: Home,
    on_progress: Callable[[Reading], None] | None = None,
    media: HomeMedia | None = None,
    *,
    reads: bool = True,
) -> Iterator[View]:
    """Opens a view for questions that belong together. Leave it soon: it holds a file open.

    A home that does not exist counts as empty. Two threads may not use the view at the same time. `on_progress` is
    called with the progress of reading the records, here and in `refresh`; an exception that it raises ends the
    reading. `media` may know event files already. With `reads=False` the caller reads the records by `refresh_part`.
    """
    from core_sdk._home.index import Index  # a database, which most trainings do not need

    with Index(home, on_progress, media) as index:
        if reads:
            index.refresh()
        yield index
