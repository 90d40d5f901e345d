"""The output of a trial: the log files of its attempts, read as one text."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Collection, Iterator
from itertools import chain, islice

from core_sdk._home import Home
from core_sdk._home.logs.levels import LevelReader
from core_sdk._home.logs.ranks import check_rank_ids
from core_sdk._home.logs.stream import LineCutter, LogReader
from core_sdk._home.opening import HomeElsewhere


class LogLevel(enum.Enum):
    TRACE = "LOG_LEVEL_TRACE"
    DEBUG = "LOG_LEVEL_DEBUG"
    INFO = "LOG_LEVEL_INFO"
    WARNING = "LOG_LEVEL_WARNING"
    ERROR = "LOG_LEVEL_ERROR"
    CRITICAL = "LOG_LEVEL_CRITICAL"


_LEVELS = list(LogLevel)


def log_lines(
    home: Home,
    trial_id: int,
    *,
    follow: bool,
    head: int | None,
    tail: int | None,
    wanted: Callable[[str], bool],
    rank_ids: Collection[int] | None,
) -> Iterator[str]:
    """Returns the wanted lines of a trial's output. The contract is the same as of `Trial.iter_logs`."""
    if head is not None and tail is not None:
        raise ValueError("head and tail exclude each other: give one of them")
    for name, count in (("head", head), ("tail", tail)):
        if count is not None and count < 0:
            raise ValueError(f"{name} is {count}; it must be at least 0")
    if rank_ids is not None:
        check_rank_ids(rank_ids)
    if isinstance(home, HomeElsewhere):
        afar = filter(wanted, _lines_afar(home, trial_id, follow=follow, rank_ids=rank_ids or ()))
        return islice(afar, head) if tail is None or follow else iter(deque(afar, maxlen=tail))
    reader = LogReader(home, trial_id, ranks=rank_ids or ())
    reader.attempts()  # raises at once if the trial does not exist
    cutter = LineCutter()
    present = filter(wanted, map(_text, cutter.cut(reader.read())))
    later = filter(wanted, map(_text, cutter.cut(reader.follow() if follow else ())))
    rest = filter(wanted, map(_text, cutter.cut(reader.finish(), is_last=True)))
    if tail is None:
        return islice(chain(present, later, rest), head)
    if follow:
        return chain(deque(present, maxlen=tail), later, rest)
    return iter(deque(chain(present, rest), maxlen=tail))


def _lines_afar(home: HomeElsewhere, trial_id: int, *, follow: bool, rank_ids: Collection[int]) -> Iterator[str]:
    """Yields the lines of a trial of a workspace."""
    from core_sdk._workspace.logs import OutputAfar  # requests, which other calls do not need

    output = OutputAfar(home.address, trial_id, ranks=rank_ids)
    kept = [row.attempt for row in output.attempts()]
    for attempt in kept:
        for line in output.read(attempt, follow=follow and attempt == kept[-1]):
            yield line.shown(with_rank=len(rank_ids) != 1) + "\n"


def _text(line: bytes) -> str:
    return line.decode(errors="replace") + "\n"


def line_filter(search_text: str | None, min_level: LogLevel | None) -> Callable[[str], bool]:
    """Returns a filter of lines by their text and level. The contract is the same as of `Trial.iter_logs`."""
    text = (search_text or "").casefold()
    wanted_levels = None if min_level is None else frozenset(_LEVELS[_LEVELS.index(LogLevel(min_level)) :])

    levels = LevelReader()

    def is_wanted(line: str) -> bool:
        # The reader must see each line, since a traceback has several.
        has_level = wanted_levels is None or LogLevel[levels.level(line)] in wanted_levels
        return has_level and text in line.casefold()

    return is_wanted
