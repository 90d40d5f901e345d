"""Reads the use that a trial has made of its machines, from the means of the figures of its last hours."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from core_sdk._home.rows import Source
from core_sdk._home.view import View

# A GPU has a series of its own for each figure: `gpu_util.GPU-0f3a…`.
_OF_GPUS = ("gpu_util", "gpu_used_memory", "gpu_power", "gpu_temperature", "gpu_throttled")
_NEWEST_MS = 3 * 3600 * 1000
# Each rank has a handful of figures, and each is a question to the index.
_MOST_RANKS = 64
_LEAST_WAIT = 1.0
"""The percentage of the time below which nobody minds that a training waits for data."""
_LEAST_WORKERS = 5.0
"""The percentage of a processor below which nothing is said of what the ranks have started."""
_LEAST_LEAD = 10.0
"""The percentage of the time by which a rank must compute longer than the others to be named."""


class MeanFigure(NamedTuple):
    """The mean of a figure over the last hours of a trial."""

    rank: Source
    name: str
    value: float


@dataclass(frozen=True)
class MachineUse:
    """Means over the last hours of a trial."""

    cpu_percent: float | None
    """The percentage for which the processors of its nodes were busy, also with other things."""
    cores: float | None
    """The processors that its ranks have used, all together."""
    worker_cores: float | None
    """The processors that what the ranks have started has used, such as loaders' workers; None if next to none."""
    rss_bytes: float | None
    """The memory of its ranks, all together, without that of the workers of their loaders."""
    read_per_s: float | None
    """The bytes that its ranks have read from disks in a second, all together."""
    written_per_s: float | None
    gpus: Mapping[str, float]
    """Figures of the GPUs of its nodes, also those that others use: `gpu_util` and so on, each the mean over them."""
    num_gpus: int
    num_ecc_errors: int
    """The memory errors of these GPUs that could not be corrected."""
    data_waits: Mapping[Source, float]
    """The percentage of the time for which each rank has waited for data."""
    computes: Mapping[Source, float]
    """The percentage of the time for which the main thread of each rank has computed. Empty where GPUs were used."""
    mfu: float | None
    """The operations of its steps, as a share of those that its devices can do in the time of its training."""

    def words(self) -> str:
        """Says in one line how the machines were used."""
        told = []
        if self.mfu is not None:
            told.append(f"MFU {_percent(100 * self.mfu)}")
        if self.num_gpus:
            told.append(self._gpu_words())
        if self.cores is not None:
            started = f", what they have started uses {self.worker_cores:.1f} cores" if self.worker_cores else ""
            told.append(f"{self._ranks()} use {self.cores:.1f} cores and {_gibibytes(self.rss_bytes or 0)}{started}")
        if self.cpu_percent is not None:
            told.append(f"the processors are {_percent(self.cpu_percent)} busy")
        return "; ".join(filter(None, [*told, self.compute_words(), self.wait_words()]))

    def compute_words(self) -> str:
        """Says which rank computes longest, so that the others wait for it; empty if none leads by much."""
        longest, others = _longest(self.computes)
        if others is None or self.computes[longest] < others + _LEAST_LEAD:
            return ""
        return f"rank {longest} computes longest, {_percent(self.computes[longest])}, the others {_percent(others)}"

    def wait_words(self) -> str:
        """Says how long ranks wait for data, and which one waits longest; empty if that is next to nothing."""
        if not self.data_waits or max(self.data_waits.values()) < _LEAST_WAIT:
            return ""
        longest, others = _longest(self.data_waits)
        if others is None:
            return f"waits {_percent(self.data_waits[longest])} for data"
        told = f"rank {longest} waits longest for data, {_percent(self.data_waits[longest])}"
        return f"{told}, the others {_percent(others)}"

    def as_values(self) -> dict[str, Any]:
        return dict(vars(self)) | {"words": self.words()}

    def _ranks(self) -> str:
        return f"its first {_MOST_RANKS} ranks" if len(self.data_waits) == _MOST_RANKS else "its ranks"

    def _gpu_words(self) -> str:
        parts: dict[str, Callable[[float], str]] = {
            "gpu_util": lambda value: f"{_percent(value)} busy",
            "gpu_used_memory": _gibibytes,
            "gpu_power": lambda value: f"{value:.0f} W",
            "gpu_temperature": lambda value: f"{value:.0f} °C",
            "gpu_throttled": lambda value: f"slowed down {_percent(value)} of the time" if value else "",
        }
        told = [tell(self.gpus[name]) for name, tell in parts.items() if name in self.gpus]
        if self.num_ecc_errors:
            told.append(f"{self.num_ecc_errors} memory errors")
        name = "GPU" if self.num_gpus == 1 else f"{self.num_gpus} GPUs"
        return f"{name}: {', '.join(filter(None, told))}"


def machine_use(figures: Iterable[MeanFigure], mfu: float | None = None) -> MachineUse | None:
    """Puts the means of figures together; None if there are none. Pure."""
    by_name: dict[str, dict[tuple[Source, str], float]] = {}
    for rank, name, value in figures:
        kind, _, device = name.partition(".")
        by_name.setdefault(kind, {})[rank, device] = value
    if not by_name and mfu is None:
        return None

    def values(name: str) -> list[float]:
        return [*by_name.get(name, {}).values()]

    def total(name: str) -> float | None:
        return sum(values(name)) if name in by_name else None

    cores, worker_cores = total("process_cpu_util"), total("workers_cpu_util")
    num_gpus = len({of for name in ("gpu_util", "gpu_free_memory") for of in by_name.get(name, {})})
    computes = {} if num_gpus else {rank: value for (rank, _), value in by_name.get("compute", {}).items()}
    return MachineUse(
        cpu_percent=_mean(values("cpu_util_simple")),
        cores=None if cores is None else cores / 100,
        worker_cores=worker_cores / 100 if worker_cores and worker_cores >= _LEAST_WORKERS else None,
        rss_bytes=total("process_rss"),
        read_per_s=total("process_read"),
        written_per_s=total("process_written"),
        gpus={name: mean for name in _OF_GPUS if (mean := _mean(values(name))) is not None},
        num_gpus=num_gpus,
        num_ecc_errors=round(total("gpu_ecc_errors") or 0),
        data_waits={rank: value for (rank, _), value in by_name.get("data_wait", {}).items()},
        computes=computes,
        mfu=mfu,
    )


def read_machine_use(view: View, trial_id: int) -> MachineUse | None:
    """Returns how a trial has used its machines in its last hours; None if nothing was recorded of that.

    Of very many ranks the first ones stand for all.
    """
    last_ms = int(1000 * (view.trial(trial_id).ended or time.time()))
    within = last_ms - _NEWEST_MS, last_ms + 1
    known = view.profile_series(trial_id)
    ranks = {*sorted({one.rank for one in known if isinstance(one.rank, int)})[:_MOST_RANKS]}
    figures = []
    for one in (one for one in known if one.group in ("cpu", "process", "gpu") and one.rank in ranks):
        for bucket in view.buckets(trial_id, one.group, one.name, 1, within=within, rank=one.rank, is_profile=True):
            if bucket.mean is not None:
                figures.append(MeanFigure(one.rank, one.name, bucket.mean))
    return machine_use(figures, _mfu(view, trial_id))


def _mfu(view: View, trial_id: int) -> float | None:
    """Returns the FLOPs of the steps that were kept, by those that the devices can do in the time of the training."""
    row = view.trial(trial_id)
    if not row.flops_per_step or not row.peak_flops or not row.steps_completed:
        return None
    (spent,) = view.times(trial_ids=[trial_id])
    seconds = spent.time.training / 1000
    return row.flops_per_step * row.steps_completed / (row.peak_flops * seconds) if seconds else None


def _longest(shares: Mapping[Source, float]) -> tuple[Source, float | None]:
    """Returns the rank with the largest share, and the mean share of the others; None if there are none."""
    longest = max(shares, key=lambda rank: shares[rank], default=0)
    return longest, _mean([share for rank, share in shares.items() if rank != longest])


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _percent(value: float) -> str:
    return f"{value:.0f} %" if value >= 10 else f"{value:.1f} %"


def _gibibytes(value: float) -> str:
    return f"{value / 2**30:.1f} GiB"
