"""Tells causes, and their mends, by the parts in which two fingerprints differ."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from core_sdk.core._recorders._fingerprints import Fingerprint

_NOT_RESTORED = "not in the checkpoint, or not loaded"
_MAX_VARIABLES = 3
_MAX_KEYS = 6


@dataclass(frozen=True)
class DifferingState:
    expected: Fingerprint
    found: Fingerprint
    """The first fingerprint that differs from the expected one."""
    undisturbed: Sequence[Fingerprint]
    """All fingerprints of the undisturbed training."""
    stopped: Sequence[Fingerprint]
    """The fingerprints of the attempt before the resume."""

    @property
    def _states(self) -> Iterator[Fingerprint]:
        return (each for each in self.undisturbed if each.event != "draws")

    def values(self, name: str) -> str:
        return f"{self.found.parts.get(name, 'missing')} instead of {self.expected.parts.get(name, 'missing')}"

    def num_differing(self, name: str) -> str:
        """Returns how many of the tensors of a part differ, in words."""
        expected, found = (each.parts.get(name, "").split(" ") for each in (self.expected, self.found))
        if len(expected) != len(found) or len(expected) == 1:
            return ""
        return f" of {sum(one != other for one, other in zip(expected, found, strict=True))} of {len(expected)}"

    def same_part(self, name: str) -> Fingerprint | None:
        """Returns the first fingerprint of the undisturbed training that has the found part."""
        value = self.found.parts.get(name)
        return next((each for each in self._states if each.parts.get(name) == value), None)

    def step_before(self, name: str) -> str | None:
        """Returns the last other value of a part before the expected fingerprint."""
        values = [each.parts[name] for each in self._states if name in each.parts and each.after <= self.expected.after]
        return next((each for each in reversed(values) if each != self.expected.parts.get(name)), None)

    def drawing_lines(self, generator: str) -> str:
        """Returns the lines of the script that draw from a generator, as far as they are known."""
        return next((each.parts.get(generator, "") for each in self.undisturbed if each.event == "draws"), "")

    def first_value(self, name: str) -> str | None:
        return next((each.parts[name] for each in self._states if name in each.parts), None)


def causes_of(differing: Sequence[str], evidence: DifferingState) -> list[str]:
    """Returns the causes, first causes first. Pure."""
    causes = [*_of_parameters(differing, evidence), *_of_states(differing, evidence), *_of_rates(differing, evidence)]
    causes += [*_of_objects(differing, evidence), *_of_other_modules(differing, evidence)]
    inputs = list(_of_inputs(differing, evidence))
    generators = list(_of_generators(differing, evidence))
    if "gradients" in differing:
        return [*causes, _of_gradients(evidence)]
    # A generator decides which samples come, and loaders that begin anew draw from generators.
    is_first = "inputs: shapes" in differing or ("inputs" in differing and evidence.same_part("inputs") is not None)
    causes += inputs + generators if is_first else generators + inputs
    return causes + list(_of_variables(differing, evidence, has_others=bool(causes)))


def _of_parameters(differing: Sequence[str], evidence: DifferingState) -> Iterator[str]:
    for name in (each for each in differing if each.endswith(": parameters")):
        whose = f"the parameters of the {name.removesuffix(': parameters')}"
        same = evidence.same_part(name)
        if same is None:
            number = evidence.num_differing(name).removeprefix(" of ")
            yield (
                f"{whose} are others{f' ({number})' if number else ''}, of no step of the undisturbed training: they "
                "are changed after they are loaded, or not all are loaded"
            )
        elif same.parts.get(name) == evidence.first_value(name):
            yield f"{whose} are the initial ones: the model is {_NOT_RESTORED}"
        elif same.parts.get(name) == evidence.step_before(name):
            yield f"{whose} are those before the last step: they are saved before step(), or the checkpoint is older"
        else:
            yield f"{whose} are others, of their state after step {same.after}: the model is loaded from another step"


def _of_states(differing: Sequence[str], evidence: DifferingState) -> Iterator[str]:
    for owner, keys in _by_owner(differing, "optimizer", ("parameters", "learning rate")).items():
        if missing := [key for key in keys if f"{owner}: {key}" not in evidence.found.parts]:
            yield f"the state of the {owner} is empty ({', '.join(missing)}): it is {_NOT_RESTORED}"
        else:
            counted = [f"{key}{evidence.num_differing(f'{owner}: {key}')}" for key in keys]
            first = f"{owner}: {keys[0]}"
            is_older = evidence.step_before(first) == evidence.found.parts.get(first)
            why = "it is saved before step(), or the checkpoint is older" if is_older else f"it is {_NOT_RESTORED}"
            yield f"the state of the {owner} differs ({', '.join(counted)}): {why}"


def _of_rates(differing: Sequence[str], evidence: DifferingState) -> Iterator[str]:
    states = _by_owner(differing, "optimizer", ("parameters", "learning rate"))
    for name in (each for each in differing if each.endswith(": learning rate")):
        with_optimizer = name.removesuffix(": learning rate") in states
        origin = "it belongs to the optimizer's state" if with_optimizer else f"the scheduler is {_NOT_RESTORED}"
        yield f"the learning rate is {evidence.values(name)}: {origin}"


def _of_objects(differing: Sequence[str], evidence: DifferingState) -> Iterator[str]:
    for kind in ("scheduler", "scaler"):
        keys = _by_owner(differing, kind).get(kind, [])
        if keys:
            values = [(key, evidence.values(f"{kind}: {key}")) for key in keys]
            shown = [key if "#" in value else f"{key} {value}" for key, value in values]
            yield f"the {kind} has another state ({', '.join(shown[:_MAX_KEYS])}): it is {_NOT_RESTORED}"
    for kind in ("sampler", "loader"):
        if f"{kind}: epoch" in differing:
            yield f"the {kind}'s epoch is {evidence.values(f'{kind}: epoch')}: call set_epoch() after a resume too"


def _of_other_modules(differing: Sequence[str], evidence: DifferingState) -> Iterator[str]:
    for name in (each for each in differing if each.endswith(": parameters that no optimizer trains")):
        owner = name.partition(":")[0]
        yield f"{owner}, which no optimizer trains, has other parameters: as an averaged copy it is {_NOT_RESTORED}"
    for owner, keys in _by_owner(differing, "buffers of ").items():
        counted = [f"{key}{evidence.num_differing(f'{owner}: {key}')}" for key in keys]
        yield f"the {owner} differ ({', '.join(counted)}): they are {_NOT_RESTORED}"


def _of_inputs(differing: Sequence[str], evidence: DifferingState) -> Iterator[str]:
    if "inputs: shapes" in differing:
        values = evidence.values("inputs: shapes")
        yield f"the model is called with inputs of shape {values}: another batch size or length"
    if "inputs" not in differing:
        return
    same = evidence.same_part("inputs")
    if same is None:
        yield (
            "the model is called with a batch that the undisturbed training never had in a step: other samples, "
            "another order, or another augmentation, such as by workers, whose generators begin anew"
        )
    else:
        anew = ", the first batch" if same.parts["inputs"] == evidence.first_value("inputs") else ""
        yield (
            f"the model is called with the batch after step {same.after} of the undisturbed training{anew}, instead of "
            f"that after step {evidence.expected.after}: the data do not go on where they stopped"
        )


def _of_gradients(evidence: DifferingState) -> str:
    expected, found = (each.parts["batches"].split() for each in (evidence.expected, evidence.found))
    if len(found) < len(expected) and expected[len(expected) - len(found) :] == found:
        return (
            f"a step is taken with {len(found)} of its {len(expected)} batches: the gradients that were accumulated "
            "before the stop are lost; stop only after a step, or keep them in the checkpoint"
        )
    return "the gradients differ, though parameters and batches are equal: what is computed is not deterministic"


def _of_generators(differing: Sequence[str], evidence: DifferingState) -> Iterator[str]:
    told = set[str | None]()
    for name in (each for each in differing if each.endswith("generator") or each.startswith("generator ")):
        value = evidence.found.parts.get(name, "").lstrip("#")
        if value in told:
            continue  # the same generator, by another name
        told.add(value)
        what = f"the {name}" if name.startswith("generator ") else name
        is_drawn = name in _drawn_in_save(evidence.stopped)
        lines = evidence.drawing_lines(name)
        drawn_by = f"; {lines} draw{'' if ',' in lines else 's'} from it" if lines else ""
        why = "the save draws from it" if is_drawn else f"it is {_NOT_RESTORED}"
        yield f"{what} has another state: {why}{drawn_by}"


def _of_variables(differing: Sequence[str], evidence: DifferingState, *, has_others: bool) -> Iterator[str]:
    names = [each for each in differing if each.startswith("variable ")]
    # Other numbers follow from what has other causes.
    discrete = [each for each in names if re.fullmatch(r"-?\d+|list #.*", evidence.expected.parts[each])]
    for name in (discrete if has_others else names)[:_MAX_VARIABLES]:
        values = evidence.values(name)
        yield f"the {name} is {'another' if '#' in values else values}: it is {_NOT_RESTORED}"


def _by_owner(differing: Sequence[str], prefix: str, without: Sequence[str] = ()) -> dict[str, list[str]]:
    """Returns the differing keys of the owners whose names begin so."""
    keys: dict[str, list[str]] = {}
    for name in differing:
        owner, colon, key = name.partition(": ")
        if colon and owner.startswith(prefix) and key not in without:
            keys.setdefault(owner, []).append(key)
    return keys


def _drawn_in_save(stopped: Sequence[Fingerprint]) -> set[str]:
    """Returns the generators that changed between the stop and the end of its save."""
    stop = next((each for each in stopped if each.event == "stop"), None)
    save = next((each for each in reversed(stopped) if each.event == "save"), None)
    if stop is None or save is None or save.after < stop.after:
        return set()
    return {name for name, value in stop.parts.items() if save.parts.get(name) != value}
