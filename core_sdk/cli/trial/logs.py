"""The kept output of attempts, as `trial logs` prints it: bytes as they are."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from core_sdk.cli._follow import Follower, following, write_all
from core_sdk.errors import CoreSDKError, NotFoundError
from core_sdk.tracking import TrialFolder
from core_sdk.tracking.ranks import RankFilter, holds_ranks, ranks_in

_STDOUT = 1
_CHUNK_BYTES = 1 << 20


class NoSuchAttemptError(NotFoundError):
    def __init__(self, trial_id: int, attempt: int, known: Iterable[int]) -> None:
        names = ", ".join(map(str, known)) or "none yet"
        super().__init__(f"trial {trial_id} has no attempt {attempt}. Its attempts: {names}.")


class NoOutputOfRankError(CoreSDKError):
    def __init__(self, trial_id: int, rank: int, known: Iterable[int]) -> None:
        names = ", ".join(map(str, sorted(known))) or "none"
        super().__init__(f"rank {rank} of trial {trial_id} has written nothing. Ranks with output: {names}.")


class NoLogError(CoreSDKError):
    def __init__(self, trial_id: int, attempt: int | None) -> None:
        what = f"trial {trial_id}" if attempt is None else f"attempt {attempt} of trial {trial_id}"
        super().__init__(
            f"no output of {what} was kept: `core-sdk run` and `core-sdk trial resume` keep that of what they start."
        )


def print_logs(
    folder: TrialFolder, *, attempt: int | None, ranks: Collection[int], tail: int | None, follow: bool
) -> None:
    """All attempts one after the other, or one; `tail` is the number of lines of the last one.

    Of the chosen `ranks`, if there are any, else everything. Raises `NoLogError`, `NoSuchAttemptError`, or
    `NoOutputOfRankError` if nothing more can come.
    """
    known = folder.attempts()
    if attempt is not None and attempt not in known:
        raise NoSuchAttemptError(folder.trial_id, attempt, known)
    attempts = known if attempt is None else [attempt]
    kept = [number for number in attempts if folder.log_path(number).exists()]
    if not kept:
        raise NoLogError(folder.trial_id, attempt)
    if not (follow and folder.is_running(kept[-1])):
        _check_ranks(folder, kept, ranks)
    for number in kept if tail is None else kept[-1:]:
        has_ended = _has_ended(folder, number) if follow and number == kept[-1] else _is_over
        if ranks:
            _print_ranks(folder.log_path(number), ranks, tail, has_ended)
        else:
            with following(folder.log_path(number), _STDOUT, tail=tail) as follower:
                follower.copy_until(has_ended)


def _check_ranks(folder: TrialFolder, attempts: Iterable[int], chosen: Iterable[int]) -> None:
    if not chosen:
        return
    present: set[int] = set()
    for number in attempts:
        with folder.log_path(number).open("rb") as lines:
            present |= ranks_in(lines)
    for rank in chosen:
        if rank not in present:
            raise NoOutputOfRankError(folder.trial_id, rank, present)


def _print_ranks(log: Path, ranks: Collection[int], tail: int | None, has_ended: Callable[[float], bool]) -> None:
    with log.open("rb") as lines:
        chosen = RankFilter(ranks, is_launched=holds_ranks(lines))
    with log.open("rb", buffering=0) as file:
        if tail is not None:
            write_all(_STDOUT, _last_lines(file, chosen, tail))
        Follower(file.fileno(), _STDOUT, chosen.feed).copy_until(has_ended)
    write_all(_STDOUT, chosen.finish())


def _last_lines(file: io.FileIO, chosen: RankFilter, num_lines: int) -> bytes:
    lines: list[bytes] = []
    while chunk := file.read(_CHUNK_BYTES):
        lines = io.BytesIO(b"".join(lines) + chosen.feed(chunk)).readlines()
        del lines[: max(0, len(lines) - num_lines)]
    return b"".join(lines)


def _is_over(timeout_s: float) -> bool:
    return True


def _has_ended(folder: TrialFolder, attempt: int) -> Callable[[float], bool]:
    def has_ended(timeout_s: float) -> bool:
        if not folder.is_running(attempt):
            return True
        time.sleep(timeout_s)
        return False

    return has_ended
