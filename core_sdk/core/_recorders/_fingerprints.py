"""Records digests of a training's state before each step, by which `core-sdk check-resume` finds what was forgotten.

A fingerprint reads the state, and never draws a random number. It knows what torch knows: what optimizers train, what
models are called with, and the global generators.
"""

from __future__ import annotations

import gc
import importlib.util
import random
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import google_crc32c
import msgspec

from core_sdk._ground.records import Record, Report


class Fingerprint(msgspec.Struct, frozen=True):
    """The state before a step of an optimizer."""

    after: int
    """The step of the last report."""
    number: int
    """The number of steps of optimizers since that report."""
    parts: dict[str, str]
    """Digests, or short values, by the names of the parts."""


class FingerprintRecorder:
    """Writes the fingerprints of this process into a file, a line of JSON for each."""

    def __init__(self, path: Path, resumed_steps: int) -> None:
        self._file = path.open("ab", buffering=0)
        self._after = resumed_steps
        self._number = 0
        self._inputs: list[str] = []
        """The digests of what models were called with since the last step."""
        self._known_modules: dict[int, Any] = {}
        """The modules that were seen, and whether each is a whole model."""
        self._optimizers: list[Any] = []
        self._others: list[tuple[str, Any]] | None = None
        """Schedulers and scalers, with their names, once they were looked for."""
        self._hooks: list[Any] = []

    def start(self) -> None:
        if importlib.util.find_spec("torch") is None:
            return
        from torch.nn.modules.module import register_module_forward_pre_hook
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        self._hooks.append(register_module_forward_pre_hook(self._before_forward))
        self._hooks.append(register_optimizer_step_pre_hook(self._before_step))

    def close(self) -> None:
        while self._hooks:
            self._hooks.pop().remove()
        self._file.close()

    def hear(self, record: Record) -> None:
        """Takes note of a report."""
        if isinstance(record, Report):
            self._after, self._number = record.steps_completed, 0

    def _before_forward(self, module: Any, inputs: tuple[Any, ...]) -> None:
        if id(module) not in self._known_modules:
            self._known_modules |= {id(each): False for each in module.modules()} | {id(module): True}
        if self._known_modules[id(module)] and module.training:
            self._inputs.append(_digest(inputs))

    def _before_step(self, optimizer: Any, *arguments: Any) -> None:
        if not any(each is optimizer for each in self._optimizers):
            self._optimizers.append(optimizer)
        if self._others is None:
            self._others = _schedulers_and_scalers()
        parts = {"inputs": _digest(self._inputs)} | generators()
        for index, each in enumerate(self._optimizers):
            name = "optimizer" if index == 0 else f"optimizer {index + 1}"
            parts |= _parts_of_optimizer(name, each)
        parts |= {name: _digest(each.state_dict()) for name, each in self._others}
        fingerprint = Fingerprint(self._after, self._number, parts)
        self._file.write(msgspec.json.encode(fingerprint) + b"\n")
        self._inputs.clear()
        self._number += 1


def _parts_of_optimizer(name: str, optimizer: Any) -> dict[str, str]:
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    keys = dict.fromkeys(key for state in optimizer.state.values() for key in state)
    of_state = {key: _digest([optimizer.state.get(each, {}).get(key) for each in parameters]) for key in keys}
    return {
        f"{name}: parameters": _digest(parameters),
        **{f"{name}: {key}": digest for key, digest in of_state.items()},
        f"{name}: learning rate": ", ".join(f"{float(group['lr']):.9g}" for group in optimizer.param_groups),
    }


def _schedulers_and_scalers() -> list[tuple[str, Any]]:
    import torch
    from torch.optim.lr_scheduler import LRScheduler

    found = gc.get_objects()
    schedulers = [each for each in found if isinstance(each, LRScheduler)]
    scalers = [each for each in found if isinstance(each, torch.amp.GradScaler)]
    named = [("scheduler", each) for each in schedulers] + [("scaler", each) for each in scalers]
    return [(f"{name} {index + 1}" if index else name, each) for index, (name, each) in enumerate(named)]


def generators() -> dict[str, str]:
    """Returns digests of the global random generators of the modules that this process has imported."""
    states: dict[str, Any] = {"Python's generator": random.getstate()}
    if (numpy := sys.modules.get("numpy")) is not None:
        states["NumPy's generator"] = numpy.random.get_state()
    if (torch := sys.modules.get("torch")) is not None:
        states["torch's generator"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            states["CUDA's generator"] = torch.cuda.get_rng_state_all()
    return {name: _digest(state) for name, state in states.items()}


def _digest(value: Any) -> str:
    """Returns a CRC-32C of tensors, arrays and plain values, which may be nested."""
    digest = 0
    for content in _contents(value):
        digest = google_crc32c.extend(digest, content)
    return f"{digest:08x}"


def _contents(value: Any) -> Iterable[bytes]:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        dense = value.detach().cpu().contiguous()
        yield str(tuple(dense.shape)).encode()
        yield dense.reshape(-1).view(torch.uint8).numpy().tobytes() if dense.numel() else b""
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield str(key).encode()
            yield from _contents(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _contents(each)
    elif isinstance(value, bool | int | float | str | bytes | None):
        yield repr(value).encode()
    elif hasattr(value, "tobytes"):
        yield value.tobytes()
    else:
        yield type(value).__qualname__.encode()
