"""The images, audios and other media that a trial has reported."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated, TypeVar

import msgspec
from starlette.responses import Response

from core_sdk._ground.records import EXTENSIONS, Source
from core_sdk._home import View
from core_sdk._home.rows import MediaRow, source_named
from core_sdk._interfaces.server.errors import RequestError
from core_sdk._interfaces.server.route import AnyRank, Id, Query
from core_sdk._interfaces.server.shared_view import SharedView
from core_sdk.errors import UnsafePathError

_T = TypeVar("_T")

_MAX_SERIES = 300
_MAX_ITEMS = 500
# Nothing in such an answer runs or loads anything, even if a browser shows it as a page of its own.
_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
    "content-disposition": "attachment",
}
_TYPES = {extension: media_type for media_type, extension in EXTENSIONS.items()}
_HARMLESS = {"text/html": "text/plain", "text/plain": "text/plain"}

FileName = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class MediaQuery(Query, frozen=True):
    superseded: bool = False
    """Whether to give also what was superseded."""
    rank: AnyRank | None = None
    """The rank whose media are given. By default it is the lowest rank that reports any in the group."""


class MediaItem(msgspec.Struct, frozen=True):
    steps_completed: int
    attempt: int
    rank: Source
    is_superseded: bool
    file_name: str
    kind: str
    media_type: str
    size_bytes: int
    caption: str
    width: int | None
    height: int | None
    duration_s: float | None
    problem: str
    """The reason for which the content was not kept; empty if it was."""


class MediaSeries(msgspec.Struct, frozen=True):
    """The media of one name, in the order of their steps."""

    group: str
    name: str
    """The metric's, with the place in its lists and mappings: `samples[0]`."""
    items: list[MediaItem]
    num_left_out: int
    """Items that are left out since an answer has at most 500 of a name; the others are evenly spaced."""


class MediaAnswer(msgspec.Struct, frozen=True):
    series: list[MediaSeries]
    num_left_out: int
    """Names that are left out since an answer has at most 300."""
    num_files: int
    size_bytes: int
    """The size of all files. Equal contents are one file."""


def media(shared: SharedView, trial_id: Id, query: MediaQuery) -> MediaAnswer:
    """Returns the names of a trial's media, and where their contents are."""

    def read(view: View) -> MediaAnswer:
        view.trial(trial_id)
        return _answer(view.media(trial_id, rank=query.rank and source_named(query.rank), superseded=query.superseded))

    version = shared.media.look(trial_id)  # it may take long, so it holds up no other question
    return shared.ask_of_trial(
        trial_id, ("media", query, version), read, size=lambda answer: sum(len(one.items) for one in answer.series)
    )


def media_file(shared: SharedView, trial_id: Id, file_name: FileName) -> Response:
    """Returns the content of a file of media, verified. HTML comes as text: only a frame of the page shows it."""
    try:
        content = shared.media.read(trial_id, file_name)
    except UnsafePathError as error:
        raise RequestError(404, "no_such_file", "the trial has no media of this name") from error
    media_type = _TYPES.get(file_name.partition(".")[2], "application/octet-stream")
    return Response(content, media_type=_HARMLESS.get(media_type, media_type), headers=_HEADERS)


def _answer(rows: Sequence[MediaRow]) -> MediaAnswer:
    by_name: defaultdict[tuple[str, str], list[MediaItem]] = defaultdict(list)
    for row in rows:
        by_name[row.group, row.name].append(_item(row))
    series = [
        MediaSeries(group, name, shown := _thinned(items, _MAX_ITEMS), len(items) - len(shown))
        for (group, name), items in list(by_name.items())[:_MAX_SERIES]
    ]
    sizes = {row.file.name: row.file.size_bytes for row in rows if not row.file.problem}
    return MediaAnswer(series, max(0, len(by_name) - _MAX_SERIES), len(sizes), sum(sizes.values()))


def _thinned(items: list[_T], most: int) -> list[_T]:
    """Returns at most so many items, evenly spaced, the first and the last among them."""
    if len(items) <= most:
        return items
    return [items[index * (len(items) - 1) // (most - 1)] for index in range(most)]


def _item(row: MediaRow) -> MediaItem:
    file = row.file
    return MediaItem(
        row.steps_completed,
        row.attempt,
        row.rank,
        row.is_superseded,
        file.name,
        file.kind,
        file.media_type,
        file.size_bytes,
        file.caption,
        file.width,
        file.height,
        file.duration_s,
        file.problem,
    )
