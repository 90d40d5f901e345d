"""Writes the fingerprints of one process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from core_sdk._ground.records import CheckpointBegun, Record, Report, StopAcknowledged
from core_sdk.core._recorders._fingerprints._digests import digest, global_generators, is_tensor
from core_sdk.core._recorders._fingerprints._draws import drawing_lines
from core_sdk.core._recorders._fingerprints._live_objects import (
    LiveObjects,
    gradients,
    parts_of_optimizers,
    parts_of_others,
)
from core_sdk.core._recorders._fingerprints._restoring import RestoreWatcher
from core_sdk.core._recorders._fingerprints._variables import variables


class Fingerprint(msgspec.Struct, frozen=True):
    """The state at one event of a training."""

    event: str
    """`start`, `forward` (the state before a forward pass, or before a step without one), `step` (of an optimizer; the
    gradients before it), `stop`, `save` (at its end), `draws` (at the end: the lines that draw from a generator, by its
    name), or the group of a report."""
    after: int
    """The step of the last report, which may be this one, or at the start the step of the checkpoint."""
    parts: dict[str, str]
    """Digests, or short values, by the names of the parts. Several are separated by spaces."""
    rank: int = 0
    notes: list[str] = []
    """The possible mistakes of the restore; only in the first fingerprint of an attempt."""

    @property
    def is_report(self) -> bool:
        return self.event not in ("start", "forward", "step", "stop", "save", "draws")


class FingerprintRecorder:
    """Writes the fingerprints of this process into a file, a line of JSON for each."""

    def __init__(self, path: Path, resumed_steps: int, rank: int) -> None:
        self._file = path.open("ab", buffering=0)
        self._after = resumed_steps
        self._rank = rank
        self._trained: dict[str, str] | None = None
        """The parts of what optimizers change, which stay as they are until the next step."""
        self._batches: list[str] = []
        """The digests of what models were called with since the last step."""
        self._waiting: dict[str, str] | None = None
        """The state before a model that was called with keywords only, which hooks do not get."""
        self._known_modules: dict[int, Any] = {}
        """The modules that were seen, and whether each is a whole model."""
        self._restore: RestoreWatcher | None = RestoreWatcher()
        self._live = LiveObjects()
        self._hooks: list[Any] = []

    def start(self) -> None:
        sys.addaudithook(self._watch)
        self._hook_torch()
        self._file.write(msgspec.json.encode(Fingerprint("start", self._after, {}, self._rank)) + b"\n")

    def _watch(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._file.closed:
            return
        if event == "import" and not self._hooks:
            self._hook_torch()
        elif event == "open" and self._restore is not None:
            self._restore.note_opened(*arguments[:2])

    def _hook_torch(self) -> None:
        """Adds hooks if torch was imported, as far as they need it: this imports nothing by itself."""
        of_modules: Any = sys.modules.get("torch.nn.modules.module")
        of_optimizers: Any = sys.modules.get("torch.optim.optimizer")
        if hasattr(of_modules, "register_module_forward_pre_hook") and hasattr(
            of_optimizers, "register_optimizer_step_pre_hook"
        ):
            self._hooks.append(of_modules.register_module_forward_pre_hook(self._before_forward))
            self._hooks.append(of_optimizers.register_optimizer_step_pre_hook(self._before_step))
            if self._restore is not None:
                self._restore.watch_modules(of_modules.Module)

    def close(self) -> None:
        if not self._rank and (lines := drawing_lines(Path.cwd())):
            self._write("draws", lines)
        while self._hooks:
            self._hooks.pop().remove()
        if self._restore is not None:
            self._restore.close()
        self._live.close()
        self._file.close()

    def hear(self, record: Record) -> None:
        """Takes note of a report, a stop and a save."""
        match record:
            case Report():
                self._after = record.steps_completed
                self._write(record.group, self._cheap_state())
            case StopAcknowledged():
                self._write("stop", global_generators())
            case CheckpointBegun():
                self._write("save", global_generators())
            case _:
                pass

    def _before_forward(self, module: Any, inputs: tuple[Any, ...]) -> None:
        if id(module) not in self._known_modules:
            self._known_modules |= {id(each): False for each in module.modules()} | {id(module): True}
        if self._known_modules[id(module)] and module.training:
            self._waiting = self._state()
        if self._waiting is not None and (tensors := [each for each in inputs if is_tensor(each)]):
            self._waiting["inputs"] = digest(inputs)
            self._waiting["inputs: shapes"] = ", ".join(str(tuple(each.shape)) for each in tensors)
            self._write_forward(self._waiting)

    def _before_step(self, optimizer: Any, *arguments: Any) -> None:
        if self._waiting is not None or not self._batches:
            self._write_forward(self._state() if self._waiting is None else self._waiting)
        parts = {"gradients": gradients(optimizer), "batches": " ".join(self._batches)}
        self._write("step", parts)
        self._trained = None
        self._batches.clear()

    def _write_forward(self, parts: dict[str, str]) -> None:
        self._write("forward", parts)
        self._batches.append(parts.get("inputs", ""))
        self._waiting = None

    def _write(self, event: str, parts: dict[str, str]) -> None:
        notes = []
        if self._restore is not None:
            notes = self._restore.notes()
            self._restore.close()
            self._restore = None
        fingerprint = Fingerprint(event, self._after, parts, self._rank, notes)
        self._file.write(msgspec.json.encode(fingerprint) + b"\n")

    def _state(self) -> dict[str, str]:
        found = self._live.find()
        if self._trained is None:
            self._trained = parts_of_optimizers(found)
        return self._trained | parts_of_others(found) | self._cheap_state()

    def _cheap_state(self) -> dict[str, str]:
        generators = self._live.find()["generator function"]
        return global_generators() | variables(sys._getframe(1), generators)
