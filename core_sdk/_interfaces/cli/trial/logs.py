"""`core-sdk trial logs`: the output of attempts, byte for byte where no terminal shows it."""

from __future__ import annotations

import io
import itertools
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict
from typing import Annotated, cast

import click

from core_sdk._ground.records import strict_json
from core_sdk._home import Home
from core_sdk._home.attempts.running import attempt_rows
from core_sdk._home.logs.levels import LEVELS, LogLevel
from core_sdk._home.logs.lines import LogFilter, LogLine, LogLines, overwritten
from core_sdk._home.logs.stream import LogReader
from core_sdk._home.opening import HomeElsewhere
from core_sdk._interfaces.cli._arguments import FollowOutput
from core_sdk._interfaces.cli._home import in_home, open_home
from core_sdk._interfaces.cli._ids import TrialId
from core_sdk._interfaces.render.output import output_writer
from core_sdk._interfaces.signatures import Option
from core_sdk.errors import CoreSDKError, NotRecordedError

_PAGE_LINES = 10_000


def logs(
    trial_id: TrialId,
    follow: FollowOutput = False,
    attempt: Annotated[int | None, Option(min=1, help="Only this attempt.", show_default="all")] = None,
    rank: Annotated[
        list[int] | None,
        Option(
            "--rank",
            "--rank-id",
            min=0,
            help="Only what this rank wrote, where a launcher started several; may be repeated.",
        ),
    ] = None,
    tail: Annotated[int | None, Option(min=0, help="Only the last lines.", show_default="all")] = None,
    head: Annotated[int | None, Option(min=0, help="Only the first lines.", show_default="all")] = None,
    level: Annotated[
        str | None,
        Option(
            metavar="LEVEL", help=f"Only lines of this level or a higher one: {', '.join(LEVELS)}.", show_default="all"
        ),
    ] = None,
    as_json: Annotated[
        bool, Option("--json", help="Print a JSON object for each line, with attempt, rank, level and text.")
    ] = False,
) -> None:
    """Print the output of a trial that `core-sdk run` or `trial resume` started.

    With one --rank the lines come without their [rank=N]. Lines of the launcher itself belong to no rank. With --tail,
    a progress bar is one line, as a terminal shows it. On a terminal, of all escape sequences only colours are kept.
    """
    if follow and (head is not None or level is not None or as_json):
        raise click.BadParameter("--head, --level and --json show what is there: leave out --follow")
    if head is not None and tail is not None:
        raise click.BadParameter("give --head or --tail, not both")
    if level is not None and level.upper() not in LEVELS:
        raise click.BadParameter(f"{level!r} is none of {', '.join(LEVELS)}", param_hint="--level")
    home, ranks = open_home(), rank or []
    if isinstance(home, HomeElsewhere):
        lines = _lines_afar(home, trial_id, attempt, ranks, cast(LogLevel, (level or "DEBUG").upper()), tail, follow)
        write = output_writer()
        for one, line in itertools.islice(lines, head):
            write(_as_json(one, line) if as_json else _as_text(line, with_rank=len(ranks) != 1))
        return
    known = [row.attempt for row in attempt_rows(home.trial(trial_id))]
    if attempt is not None and attempt not in known:
        raise NotRecordedError(f"trial {trial_id} has no attempt {attempt}", "Its attempts", known)
    kept = LogReader(home, trial_id, attempt=attempt).attempts()
    if not kept:
        what = f"trial {trial_id}" if attempt is None else f"attempt {attempt} of trial {trial_id}"
        keepers = "`core-sdk run` and `core-sdk trial resume` keep the output of scripts"
        raise CoreSDKError(f"no output of {what} was kept: only {keepers}.")
    # The last lines belong to the last attempt.
    reader = LogReader(home, trial_id, attempt=attempt if tail is None else kept[-1].attempt, ranks=ranks)
    if not (follow and reader.is_running()):
        _check_ranks(reader, trial_id, ranks)
    present: Iterator[bytes] = (chunk.content for chunk in reader.read())
    if level is not None or as_json:
        wanted = LogFilter(ranks, cast(LogLevel, (level or "DEBUG").upper()))
        found = _lines(home, trial_id, [row.attempt for row in reader.attempts()], wanted, tail)
        present = (_as_json(attempt, line) if as_json else _as_text(line) for attempt, line in found)
    elif tail is not None:
        present = _last_lines(present, tail)
    if head is not None:
        present = _first_lines(present, head)
    write = output_writer()
    for content in present:
        write(content)
    if level is None and head is None and not as_json:
        for chunk in itertools.chain(reader.follow() if follow else (), reader.finish()):
            write(chunk.content)


def _lines(
    home: Home, trial_id: int, attempts: Iterable[int], wanted: LogFilter, tail: int | None
) -> Iterator[tuple[int, LogLine]]:
    """Yields the wanted lines, or the last ones of them, each with its attempt."""
    for attempt in attempts:
        lines = LogLines(home, trial_id, attempt)
        if tail is not None:
            yield from ((attempt, line) for line in lines.read_last(tail, wanted))
            continue
        next_line: int | None = 0
        while next_line is not None:
            page = lines.read(next_line, _PAGE_LINES, wanted)
            yield from ((attempt, line) for line in page.lines)
            next_line = page.next_line


def _lines_afar(
    home: HomeElsewhere,
    trial_id: int,
    attempt: int | None,
    ranks: Collection[int],
    level: LogLevel,
    tail: int | None,
    follow: bool,
) -> Iterator[tuple[int, LogLine]]:
    """Yields the wanted lines of a trial of a workspace, each with its attempt."""
    from core_sdk._workspace.logs import OutputAfar  # requests, which other commands do not need

    output = OutputAfar(home.address, trial_id, ranks=ranks, level=level)
    kept = [row.attempt for row in output.attempts() if attempt in (None, row.attempt)]
    if not kept:
        raise CoreSDKError(f"no output of trial {trial_id} is {in_home(home)}")
    for one in kept if tail is None else kept[-1:]:
        goes_on = follow and one == kept[-1]
        found = output.read(one, -(tail or 0), follow=goes_on) if tail is None or goes_on else output.last(one, tail)
        yield from ((one, line) for line in found)


def _as_text(line: LogLine, *, with_rank: bool = False) -> bytes:
    return f"{line.shown(with_rank=with_rank)}\n".encode("utf-8", "surrogateescape")


def _as_json(attempt: int, line: LogLine) -> bytes:
    text = line.text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return f"{strict_json({'attempt': attempt, **asdict(line), 'text': text})}\n".encode()


def _first_lines(contents: Iterable[bytes], num_lines: int) -> Iterator[bytes]:
    for content in contents:
        lines = content.splitlines(keepends=True)[:num_lines]
        yield b"".join(lines)
        num_lines -= sum(line.endswith(b"\n") for line in lines)
        if num_lines <= 0:
            return


def _check_ranks(reader: LogReader, trial_id: int, chosen: Collection[int]) -> None:
    if not chosen:
        return
    # A log without a launcher's prefixes is the output of rank 0.
    present = set().union(*(reader.ranks_of(row.attempt) or {0} for row in reader.attempts()))
    for rank in chosen:
        if rank not in present:
            names = ", ".join(map(str, sorted(present))) or "none"
            raise CoreSDKError(f"rank {rank} of trial {trial_id} has written nothing. Ranks with output: {names}.")


def _last_lines(contents: Iterable[bytes], num_lines: int) -> Iterator[bytes]:
    lines: list[bytes] = []
    for content in contents:
        lines = io.BytesIO(b"".join(lines) + content).readlines()
        del lines[: max(0, len(lines) - num_lines)]
    yield from (overwritten(line.removesuffix(b"\n")) + line[-1:] * line.endswith(b"\n") for line in lines)
