"""Finds the objects of torch that hold a training's state among all live objects, and digests them by parts."""

from __future__ import annotations

import gc
import sys
import weakref
from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import GeneratorType
from typing import Any

from core_sdk.core._recorders._fingerprints._digests import digest, digests


class LiveObjects:
    """The live objects of the kinds that hold a training's state.

    All objects are looked at once. Later only young ones are, before the collector moves them among the old ones.
    """

    def __init__(self) -> None:
        self._kinds: dict[type, str] = {}
        """The kind of each type that was met; empty if it is none of them."""
        self._num_bases = 0
        self._known: dict[int, tuple[str, weakref.ref[Any]]] = {}

    def close(self) -> None:
        if self._before_collection in gc.callbacks:
            gc.callbacks.remove(self._before_collection)

    def find(self) -> Mapping[str, list[Any]]:
        """Returns all live objects of a kind, by the name of the kind."""
        if (num_bases := len(_bases())) != self._num_bases:
            self._num_bases = num_bases
            self._kinds.clear()
            self._note(gc.get_objects())
            self.close()
            gc.callbacks.append(self._before_collection)
        self._note_young()
        found = defaultdict[str, list[Any]](list)
        for key, (kind, reference) in list(self._known.items()):
            if (each := reference()) is None:
                self._known.pop(key)
            else:
                found[kind].append(each)
        return found

    def _before_collection(self, phase: str, facts: Mapping[str, int]) -> None:
        if phase == "start" and facts["generation"]:
            self._note_young()

    def _note_young(self) -> None:
        for generation in (0, 1):
            self._note(gc.get_objects(generation))

    def _note(self, objects: list[Any]) -> None:
        kinds = self._kinds
        for each in objects:
            kind = kinds.get(type(each))
            if kind is None:
                names = (name for name, base in _bases() if issubclass(type(each), base))
                kind = kinds[type(each)] = next(names, "")
            if kind:
                self._known[id(each)] = kind, weakref.ref(each)


def parts_of_optimizers(found: Mapping[str, list[Any]]) -> dict[str, str]:
    """Returns digests of the parameters and states of all optimizers, by the names of their parts."""
    optimizers = sorted(found["optimizer"], key=_key_of_optimizer)
    parts: dict[str, str] = {}
    for name, optimizer in zip(_numbered("optimizer", len(optimizers)), optimizers, strict=True):
        parts |= _parts_of_optimizer(name, optimizer)
    return parts


def parts_of_others(found: Mapping[str, list[Any]]) -> dict[str, str]:
    """Returns digests, or short values, of the other objects by the names of their parts."""
    trained = {id(each) for optimizer in found["optimizer"] for each in _parameters(optimizer)}
    parts = _parts_of_modules(_roots(found["module"]), trained)
    for kind in ("scheduler", "scaler"):
        parts |= _merged(_parts_of_state(kind, each.state_dict()) for each in found[kind])
    for kind in ("loader", "sampler"):
        parts |= _merged(_parts_of_sampler(kind, each) for each in found[kind])
    return parts


def gradients(optimizer: Any) -> str:
    """Returns the digests of the gradients that the optimizer is about to apply."""
    return digests(each.grad for each in _parameters(optimizer))


def _bases() -> list[tuple[str, Any]]:
    bases: list[tuple[str, Any]] = [("generator function", GeneratorType)]
    if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "optim"):
        from torch.utils.data import DataLoader, Sampler

        bases += [
            ("module", torch.nn.Module),
            ("optimizer", torch.optim.Optimizer),
            ("scheduler", torch.optim.lr_scheduler.LRScheduler),
            ("scaler", torch.amp.GradScaler),
            ("loader", DataLoader),
            ("sampler", Sampler),
        ]
    return bases


def _parameters(optimizer: Any) -> list[Any]:
    return [each for group in optimizer.param_groups for each in group["params"]]


def _key_of_optimizer(optimizer: Any) -> tuple[str, list[tuple[int, ...]]]:
    return type(optimizer).__qualname__, [tuple(each.shape) for each in _parameters(optimizer)]


def _numbered(name: str, count: int) -> list[str]:
    return [name if index == 0 else f"{name} {index + 1}" for index in range(count)]


def _parts_of_optimizer(name: str, optimizer: Any) -> dict[str, str]:
    parameters = _parameters(optimizer)
    keys = dict.fromkeys(key for state in optimizer.state.values() for key in state)
    of_state = {key: digests(optimizer.state.get(each, {}).get(key) for each in parameters) for key in keys}
    return {
        f"{name}: parameters": digests(parameters),
        **{f"{name}: {key}": value for key, value in of_state.items()},
        f"{name}: learning rate": ", ".join(f"{float(group['lr']):.9g}" for group in optimizer.param_groups),
    }


def _roots(modules: list[Any]) -> list[Any]:
    """Returns the modules that are no part of another one."""
    made = [each for each in modules if "_modules" in vars(each)]
    children = {id(child) for each in made for child in each.children()}
    return [each for each in made if id(each) not in children]


def _parts_of_modules(roots: list[Any], trained: set[int]) -> dict[str, str]:
    parts = []
    for root in roots:
        name = type(root).__qualname__
        others = [each for each in root.parameters() if id(each) not in trained]
        buffers = defaultdict[str, list[Any]](list)
        for path, each in root.named_buffers():
            buffers[path.rpartition(".")[2]].append(each)
        of_root = {f"buffers of {name}: {key}": digests(each) for key, each in buffers.items()}
        if others:
            of_root[f"{name}: parameters that no optimizer trains"] = digests(others)
        parts.append(of_root)
    return _merged(parts)


def _parts_of_state(kind: str, state: Mapping[str, Any]) -> dict[str, str]:
    return {
        f"{kind}: {key}": repr(value) if isinstance(value, bool | int | float) else f"#{digest(value)}"
        for key, value in state.items()
    }


def _parts_of_sampler(kind: str, sampler: Any) -> dict[str, str]:
    parts = {}
    if (generator := getattr(sampler, "generator", None)) is not None:
        parts[f"the {kind}'s generator"] = digest(generator)
    if isinstance(epoch := vars(sampler).get("epoch"), int):
        parts[f"{kind}: epoch"] = str(epoch)
    return parts


def _merged(parts: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Returns the values of the parts with the same name as one text, whatever the order of their objects."""
    merged = defaultdict[str, list[str]](list)
    for each in parts:
        for name, value in each.items():
            merged[name].append(value)
    return {name: ", ".join(sorted(values)) for name, values in merged.items()}
