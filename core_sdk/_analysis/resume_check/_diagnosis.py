"""Finds what a resumed training has forgotten, by the fingerprints of its first steps."""

from __future__ import annotations

from collections.abc import Sequence

from core_sdk.core._recorders import Fingerprint

_MAX_STEPS = 5


def diagnose(undisturbed: Sequence[Fingerprint], resumed: Sequence[Fingerprint], unsteady: frozenset[str]) -> list[str]:
    """Returns the causes for which the resumed training differs, most likely ones first; empty if none is seen. Pure.

    The undisturbed training's fingerprints are all it has; `resumed` begins with the first step after the resume. Parts
    that are `unsteady` differ between undisturbed trainings too.
    """
    by_place = {(each.after, each.number): each for each in undisturbed}
    for found in resumed[:_MAX_STEPS]:
        expected = by_place.get((found.after, found.number))
        if expected is None:
            return []
        names = [*expected.parts, *(name for name in found.parts if name not in expected.parts)]
        differing = [name for name in names if expected.parts.get(name) != found.parts.get(name)]
        if differing := [name for name in differing if name not in unsteady]:
            return _causes(differing, expected, found, undisturbed)
    return []


def unsteady_parts(first: Sequence[Fingerprint], second: Sequence[Fingerprint]) -> frozenset[str]:
    """Returns the parts that differ between two undisturbed trainings, such as a generator without a seed. Pure."""
    by_place = {(each.after, each.number): each.parts for each in first}
    pairs = [
        (by_place[each.after, each.number], each.parts) for each in second if (each.after, each.number) in by_place
    ]
    return frozenset(
        name for one, other in pairs for name in one.keys() | other.keys() if one.get(name) != other.get(name)
    )


def _causes(
    differing: list[str], expected: Fingerprint, found: Fingerprint, undisturbed: Sequence[Fingerprint]
) -> list[str]:
    causes = []
    for name in (each for each in differing if each.endswith(": parameters")):
        owner = name.removesuffix(": parameters")
        place = _same_part(name, found, undisturbed)
        where = "of no step of the undisturbed training" if place is None else f"of its state {place}"
        initial = undisturbed[0].parts.get(name) == found.parts.get(name)
        causes.append(
            f"the parameters of the {owner} are the initial ones: the model is not loaded"
            if initial
            else f"the parameters of the {owner} are others, {where}: the model is loaded from another step, or changed"
        )
    states = _states(differing)
    for owner, keys in states.items():
        missing = [key for key in keys if f"{owner}: {key}" not in found.parts]
        causes.append(
            f"the state of the {owner} is empty ({', '.join(missing)}): it is not in the checkpoint, or not loaded"
            if missing
            else f"the state of the {owner} differs ({', '.join(keys)})"
        )
    for name in (each for each in differing if each.endswith(": learning rate")):
        values = f"{found.parts.get(name)} instead of {expected.parts.get(name)}"
        with_optimizer = name.removesuffix(": learning rate") in states
        origin = "it belongs to the optimizer's state" if with_optimizer else "the scheduler is not loaded"
        causes.append(f"the learning rate is {values}: {origin}")
    causes += [f"the {name} has another state" for name in differing if name.split()[0] in ("scheduler", "scaler")]
    if "inputs" in differing:
        place = _same_part("inputs", found, undisturbed)
        causes.append(
            "the model is called with a batch that the undisturbed training never had in a step: other samples, "
            "another order, or another augmentation"
            if place is None
            else f"the model is called with the batch {place} of the undisturbed training: the data do not go on where "
            "they stopped"
        )
    return causes + [f"{name} has another state" for name in differing if name.endswith("generator")]


def _states(differing: Sequence[str]) -> dict[str, list[str]]:
    """Returns the differing keys of the states of each optimizer."""
    states: dict[str, list[str]] = {}
    for name in differing:
        owner, colon, key = name.partition(": ")
        if colon and key not in ("parameters", "learning rate"):
            states.setdefault(owner, []).append(key)
    return states


def _same_part(name: str, found: Fingerprint, undisturbed: Sequence[Fingerprint]) -> str | None:
    """Returns the place at which the undisturbed training had the same part."""
    same = next((each for each in undisturbed if each.parts.get(name) == found.parts.get(name)), None)
    return None if same is None else f"after step {same.after}" + (f" + {same.number}" if same.number else "")
