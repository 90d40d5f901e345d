"""The slots of this machine: its GPUs, or places on its CPU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core_sdk.environment import visible_gpus
from core_sdk.experiments.protocol import HomeStatus
from core_sdk.tracking.attempts.slots import Slots

_GPUS = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True)
class Machine:
    """The slots of this machine that trials run on, numbered from 0."""

    num_slots: int
    gpus: tuple[str, ...] = ()
    """CUDA's name of each slot's GPU; empty if the slots are places on the CPU."""

    @classmethod
    def here(cls, num_places: int | None = None) -> Machine:
        """Returns `num_places` on the CPU if given, else all GPUs that this process may use, else a place per CPU.

        GPUs are found through NVIDIA's driver in Linux's /proc, since to load its libraries takes seconds.
        """
        if num_places is not None:
            return cls(num_places)
        gpus = visible_gpus()
        if gpus is None:
            gpus = [str(index) for index in range(len(list(_GPUS.iterdir())))] if _GPUS.is_dir() else []
        return cls(len(gpus) or _num_cpus(), tuple(gpus))

    def slots(self, ids: Sequence[int]) -> Slots:
        gpus = tuple(self.gpus[slot] for slot in ids) if self.gpus else ()
        return Slots(tuple(ids), gpus, max(1, len(ids) * _num_cpus() // max(1, self.num_slots)))


def status_without_master() -> HomeStatus:
    """Returns the status of a home that has no master: free slots, and no experiments."""
    machine = Machine.here()
    return HomeStatus(num_slots=machine.num_slots, gpus=machine.gpus)


def _num_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
