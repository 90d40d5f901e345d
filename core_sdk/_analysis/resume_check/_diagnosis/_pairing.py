"""Pairs the fingerprints of a resumed training with those of the undisturbed one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from core_sdk.core._recorders._fingerprints import Fingerprint

Pairs: TypeAlias = "list[tuple[Fingerprint, Fingerprint]]"
"""The expected and the found fingerprint of each event that both trainings have."""


def pairs_by_report(undisturbed: Sequence[Fingerprint], resumed: Sequence[Fingerprint], rank: int) -> Pairs:
    """Pairs events of a rank that come equally many events before the same report. Pure."""
    by_place = dict(_placed(undisturbed, rank))
    return [(by_place[place], each) for place, each in _placed(resumed, rank) if place in by_place]


def pairs_in_order(undisturbed: Sequence[Fingerprint], resumed: Sequence[Fingerprint]) -> Pairs:
    """Pairs events of the chief in the order after the step of which the resumed training was told. Pure."""
    events = [each for each in undisturbed if _is_event(each, 0)]
    told = next((each.after for each in resumed if each.event == "start"), 0)
    reports = [index for index, each in enumerate(events) if _is_training_report(each) and each.after <= told]
    first = reports[-1] + 1 if reports else 0
    return list(zip(events[first:], [each for each in resumed if _is_event(each, 0)], strict=False))


@dataclass(frozen=True)
class WrongCounter:
    """The first report after the resume has another step than it should have."""

    found: int
    expected: int


def wrong_counter(undisturbed: Sequence[Fingerprint], resumed: Sequence[Fingerprint]) -> WrongCounter | None:
    """Returns how the first report is counted, if otherwise than by the step of which the training was told. Pure."""
    steps = [each.after for each in undisturbed if _is_training_report(each)]
    told = next((each.after for each in resumed if each.event == "start"), None)
    found = next((each.after for each in resumed if _is_training_report(each)), None)
    expected = next((each for each in steps if told is not None and each > told), None)
    if told not in steps or found is None or expected is None or found == expected:
        return None
    return WrongCounter(found, expected)


def _is_event(fingerprint: Fingerprint, rank: int) -> bool:
    return fingerprint.rank == rank and (fingerprint.event in ("forward", "step") or fingerprint.is_report)


def _is_training_report(fingerprint: Fingerprint) -> bool:
    return fingerprint.rank == 0 and fingerprint.is_report and fingerprint.event != "validation"


def _placed(fingerprints: Sequence[Fingerprint], rank: int) -> list[tuple[tuple[int, str, int], Fingerprint]]:
    of_chief = [each for each in fingerprints if _is_event(each, 0)]
    places = []
    step, group, number = -1, "", 0
    for each in reversed(of_chief):
        if each.is_report:
            step, group, number = each.after, each.event, 0
        places.append((step, group, number))
        number += 1
    places.reverse()
    if rank == 0:
        return [pair for pair in zip(places, of_chief, strict=True) if pair[0][0] >= 0]
    # Other ranks do not report; they take the same steps.
    of_steps = [place for place, each in zip(places, of_chief, strict=True) if not each.is_report]
    return [
        pair
        for pair in zip(of_steps, (each for each in fingerprints if _is_event(each, rank)), strict=False)
        if pair[0][0] >= 0
    ]
