"""The run info: where a script runs and for which trial. It is the content of a file, and `core_context.info`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

import msgspec

Keep = Literal["all", "model"] | Collection[str]
"""The parts of a checkpoint to keep: all, the weights alone, or named parts. The rest starts from its beginning."""
RecordedKeep = Literal["all", "model"] | list[str]


class Detour(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The place in its data at which a loader goes on after a guard has left out batches."""

    data: str
    """The data by their order and length, by which a loader knows its own."""
    seed: int
    """The seed of their order."""
    epoch: int
    offset: int
    """The place that the training had reached in that epoch when the trouble was reported."""
    num_batches: int = 0
    """The batches beyond that place which are left out, too."""


class Setback(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The way in which an attempt goes on after a guard has let the trial go back."""

    attempt: int
    """The attempt in which there was trouble."""
    from_steps: int
    """The step at which it was reported."""
    reason: str
    detours: list[Detour] = []
    num_reshuffles: int = 0
    """How often the order of the data is to have another seed."""
    begins_anew: bool = False
    """Whether there is no checkpoint from before the trouble."""


class TrialInfo(msgspec.Struct, kw_only=True):
    """The trial that a script executes."""

    trial_id: int
    """The number by which commands name it."""
    experiment_id: int
    """The number of its experiment."""
    trial_seed: int
    """A number to seed random generators with, the same in all attempts and on all ranks."""
    hparams: dict[str, Any] = {}
    """The trial's hyperparameters: chosen by a search, given on the command line, or told to `init()`."""
    config: dict[str, Any] = {}
    """The experiment's configuration; empty for a trial without one."""
    steps_completed: int = 0
    """The steps of the checkpoint to continue from."""
    keep: RecordedKeep | None = None
    """The parts of that checkpoint to keep, as `trial continue --keep` says; None if nothing was said."""
    attempt: int = msgspec.field(default=1, name="trial_run_id")
    """The number of this execution of the trial, counted from 1."""
    setback: Setback | None = None
    """What a guard has decided about it; None unless it goes on from a checkpoint to which the trial has gone back."""

    # Scripts of Determined read these names.
    @property
    def _config(self) -> dict[str, Any]:
        return self.config

    @property
    def _steps_completed(self) -> int:
        return self.steps_completed

    @property
    def _trial_run_id(self) -> int:
        return self.attempt


PLACED = "PLACED"
"""The task type of ranks that were only placed on nodes: they begin a new trial, as a script started by hand."""


class ClusterInfo(msgspec.Struct, kw_only=True):
    """The run info: the place where a script runs, and the trial for which it runs."""

    format: int = 1
    """The version of the file by which a process learns this."""
    task_type: str = "TRIAL"
    """TRIAL for all that has a trial."""
    master_url: str = ""
    """Empty; it is there for scripts that read it."""
    cluster_id: str = ""
    """Empty; it is there for scripts that read it."""
    agent_id: str = ""
    """Empty; it is there for scripts that read it."""
    task_id: str = ""
    """The trial, as text."""
    allocation_id: str = ""
    """The trial and its attempt, as text."""
    session_token: str = ""
    """Empty; it is there for scripts that read it."""
    named_slot_ids: list[int] = msgspec.field(default_factory=list, name="slot_ids")
    """Empty if the slots have no names: see `slot_ids`."""
    container_addrs: list[str] = msgspec.field(default_factory=lambda: ["127.0.0.1"])
    """Addresses of all nodes, ordered by node rank."""
    container_rank: int = 0
    """The number of this node."""
    container_slot_counts: list[int] = msgspec.field(default_factory=lambda: [1])
    """The number of slots of each node, ordered by node rank."""
    gpu_uuids: list[str] = []
    """This node's GPUs by NVIDIA's names, if they are known."""
    latest_checkpoint: str | None = None
    """The storage id to continue from; None on a fresh start."""
    trial_or_none: TrialInfo | None = msgspec.field(default=None, name="trial")
    """The trial; None for a task that is not a trial."""
    user_data: dict[str, Any] = {}
    """The experiment's free-form `data`."""
    asked: float | None = None
    """The time since which the attempt has waited for slots, in seconds since the Unix epoch; None if it has not."""
    launched: float | None = None
    """The time at which its command was started; None if nobody has started it for this attempt."""

    @property
    def slot_ids(self) -> list[int]:
        """This node's slots: indices of GPUs, or places on the CPU, counted from 0. There is at least one."""
        counts = self.container_slot_counts[self.container_rank : self.container_rank + 1]
        return self.named_slot_ids or list(range(max([1, *counts])))

    @property
    def trial(self) -> TrialInfo:
        """Raises `RuntimeError` for a task that is not a trial."""
        if self.trial_or_none is None:
            raise RuntimeError(f"a task of type {self.task_type} has no trial")
        return self.trial_or_none

    @property
    def _trial_info(self) -> TrialInfo | None:
        """The name that scripts of Determined read."""
        return self.trial_or_none
