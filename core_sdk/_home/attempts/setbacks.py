"""Decides how a trial goes on after its guards have found trouble. The records alone decide, whoever starts it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from core_sdk._ground.records import Detour, Setback, TroubleFound
from core_sdk._home.folders import TrialFolder
from core_sdk._home.journal import find_records


def setback_before(troubles: Iterable[tuple[int, TroubleFound]], checkpoint_attempt: int) -> Setback | None:
    """Returns how an attempt goes on that begins with a checkpoint of `checkpoint_attempt`, 0 if it begins anew. Pure.

    `troubles` are those of all attempts so far, in their order. Those of attempts before the checkpoint's are past: it
    holds what came after them.
    """
    backs = [(number, each) for number, each in troubles if each.action == "go_back" and number >= checkpoint_attempt]
    if not backs:
        return None
    number, newest = backs[-1]
    detours: dict[tuple[str, int], Detour] = {}
    for detour in (each for _, trouble in backs for each in trouble.detours or ()):
        known = detours.get((detour.data, detour.seed))
        if known is None or (known.epoch, known.offset) <= (detour.epoch, detour.offset):
            detours[detour.data, detour.seed] = detour
    return Setback(
        attempt=number,
        from_steps=newest.steps,
        reason=newest.reason,
        detours=list(detours.values()),
        num_reshuffles=sum(each.reshuffles for _, each in backs),
        begins_anew=checkpoint_attempt == 0,
    )


def read_troubles(folder: TrialFolder, attempts: Sequence[int]) -> list[tuple[int, TroubleFound]]:
    """Returns what guards have found in these attempts."""
    read = [(number, find_records(folder.journal_path(number), ['"trouble"'])) for number in attempts]
    return [(number, each) for number, found in read for each in found if isinstance(each, TroubleFound)]


_SOURCE = "guard: "


def stop_source(reason: str) -> str:
    """Returns the source of the stop for which a guard asks."""
    return f"{_SOURCE}{reason}"


def is_of_guard(source: str | None) -> bool:
    return source is not None and source.startswith(_SOURCE)
