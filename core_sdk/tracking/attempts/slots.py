"""The slots of an attempt, and the environment variables of its script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Slots:
    """The slots that an attempt may use."""

    ids: tuple[int, ...]
    gpus: tuple[str, ...] = ()
    """CUDA's names (indices or UUIDs) of the GPUs that the slots are; empty for places on the CPU."""
    num_threads: int = 1
    """The number of threads that one place on the CPU is worth."""

    @property
    def variables(self) -> dict[str, str]:
        """The variables that hide the GPUs of other attempts. An attempt without a GPU sees none."""
        return {"CUDA_VISIBLE_DEVICES": ",".join(self.gpus)}

    @property
    def default_variables(self) -> dict[str, str]:
        """The variables that are set only if the user has not set them."""
        return {} if self.gpus else {"OMP_NUM_THREADS": str(self.num_threads)}


def configured_variables(config: Mapping[str, Any], *, has_gpus: bool) -> dict[str, str]:
    """Returns the `environment.environment_variables` of an experiment's configuration.

    They are a list of `NAME=value`, or such lists by device (`cuda` and `cpu`).
    """
    return dict(_assignments((config.get("environment") or {}).get("environment_variables"), has_gpus))


def _assignments(given: Any, has_gpus: bool) -> Iterator[tuple[str, str]]:
    if isinstance(given, Mapping):
        given = given.get("cuda" if has_gpus else "cpu")
    for assignment in given or ():
        name, _, value = assignment.partition("=")
        yield name, value
