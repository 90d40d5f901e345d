"""Finds what a resumed training has forgotten, by the first fingerprint that differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from core_sdk._analysis.resume_check._diagnosis._causes import DifferingState, causes_of
from core_sdk._analysis.resume_check._diagnosis._pairing import (
    Pairs,
    pairs_by_report,
    pairs_in_order,
    wrong_counter,
)
from core_sdk.core._recorders._fingerprints import Fingerprint

_MAX_UNSTEADY = 5


def diagnose(
    undisturbed: Sequence[Fingerprint],
    resumed: Sequence[Fingerprint],
    unsteady: frozenset[str],
    stopped: Sequence[Fingerprint] = (),
) -> list[str]:
    """Returns the causes for which the resumed training differs, first causes first; empty if none is seen. Pure.

    The fingerprints of the undisturbed training are all it has, and those of the resumed one begin with the resume.
    `stopped` are those of the attempt before it. Parts that are `unsteady` differ between undisturbed trainings too.
    """
    known_notes = {note for each in undisturbed for note in each.notes}
    notes = [note for each in resumed if each.rank == 0 for note in each.notes if note not in known_notes]
    found = []
    for rank in sorted({each.rank for each in resumed}):
        pairs = pairs_by_report(undisturbed, resumed, rank)
        if (first := _first_difference(pairs, undisturbed, unsteady)) is not None:
            found.append((first, rank, pairs))
    counter = wrong_counter(undisturbed, resumed)
    if counter is not None:
        words = f"the first step after the resume is reported as step {counter.found} instead of {counter.expected}"
        in_order = pairs_in_order(undisturbed, resumed)
        if not found:
            return [*notes, f"{words}: the training goes on from an older checkpoint"]
        differing = _differing(*in_order[0], undisturbed, unsteady) if in_order else []
        if in_order and all(each.startswith("variable ") for each in differing):
            evidence = DifferingState(*in_order[0], undisturbed, stopped)
            return [f"{words}: the counter of steps is restored wrongly", *causes_of(differing, evidence)]
        notes.append(f"{words}: the counter of steps is restored wrongly, or the checkpoint is an older one")
    if not found:
        return []
    first, rank, pairs = min(found, key=lambda each: each[:2])
    expected, differs = pairs[first]
    evidence = DifferingState(expected, differs, [each for each in undisturbed if each.rank == rank], stopped)
    causes = causes_of(_differing(expected, differs, undisturbed, unsteady), evidence)
    return notes + [f"rank {rank}: {each}" if rank else each for each in causes]


def unsteady_parts(first: Sequence[Fingerprint], second: Sequence[Fingerprint]) -> frozenset[str]:
    """Returns the parts that differ between two undisturbed trainings, such as a generator without a seed. Pure."""
    return frozenset(name for differing in _differences(first, second) for name in differing)


def first_unsteady_parts(first: Sequence[Fingerprint], second: Sequence[Fingerprint]) -> list[str]:
    """Returns some parts that are the first to differ between two undisturbed trainings. Pure."""
    differing = next((each for each in _differences(first, second) if each), [])
    return sorted(differing, key=lambda name: name.startswith("variable "))[:_MAX_UNSTEADY]


def _differences(first: Sequence[Fingerprint], second: Sequence[Fingerprint]) -> Iterator[list[str]]:
    for rank in sorted({each.rank for each in second}):
        for one, other in pairs_by_report(first, second, rank):
            names = dict.fromkeys([*one.parts, *other.parts])
            yield [name for name in names if one.parts.get(name) != other.parts.get(name)]


def _first_difference(pairs: Pairs, undisturbed: Sequence[Fingerprint], unsteady: frozenset[str]) -> int | None:
    differences = (index for index, pair in enumerate(pairs) if _differing(*pair, undisturbed, unsteady))
    return next(differences, None)


def _differing(
    expected: Fingerprint, found: Fingerprint, undisturbed: Sequence[Fingerprint], unsteady: frozenset[str]
) -> list[str]:
    names = dict.fromkeys([*expected.parts, *found.parts])
    differing = [
        name
        for name in names
        if expected.parts.get(name) != found.parts.get(name) and name not in unsteady and name != "batches"
    ]
    return [
        name for name in differing if not name.startswith("variable ") or _counts(name, expected, found, undisturbed)
    ]


def _counts(name: str, expected: Fingerprint, found: Fingerprint, undisturbed: Sequence[Fingerprint]) -> bool:
    """Returns whether a variable is a state: both trainings have it, and the undisturbed one changes it."""
    is_in_both = name in expected.parts and name in found.parts
    return is_in_both and len({each.parts[name] for each in undisturbed if name in each.parts}) > 1
