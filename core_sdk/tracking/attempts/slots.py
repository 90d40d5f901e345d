"""The slots of an attempt, and what its script's environment says of them and of its experiment."""

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
    """How many threads one place on the CPU is worth."""

    @property
    def variables(self) -> dict[str, str]:
        """They hide the GPUs of others, from an attempt without a GPU all of them."""
        return {"CUDA_VISIBLE_DEVICES": ",".join(self.gpus)}

    @property
    def default_variables(self) -> dict[str, str]:
        """What holds unless the user has set it."""
        return {} if self.gpus else {"OMP_NUM_THREADS": str(self.num_threads)}


def configured_variables(config: Mapping[str, Any], *, has_gpus: bool) -> dict[str, str]:
    """`environment.environment_variables` of an experiment's configuration: `NAME=value`, or such lists by device."""
    return dict(_assignments((config.get("environment") or {}).get("environment_variables"), has_gpus))


def _assignments(given: Any, has_gpus: bool) -> Iterator[tuple[str, str]]:
    if isinstance(given, Mapping):
        given = given.get("cuda" if has_gpus else "cpu")
    for assignment in given or ():
        name, _, value = assignment.partition("=")
        yield name, value
