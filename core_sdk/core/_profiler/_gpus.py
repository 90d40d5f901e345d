"""Figures of this node's NVIDIA GPUs, from NVML."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pynvml


def gpus() -> list[Gpu]:
    """Returns all GPUs of the node, also those that other processes use; none if there is no driver."""
    try:
        # Never shut down: torch shares the count of users in this process.
        pynvml.nvmlInit()
        return [Gpu(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return []


class Gpu:
    """A GPU. The names of its figures end with its UUID."""

    group = "gpu"

    def __init__(self, index: int) -> None:
        self.name = f"gpu {index}"
        self._index = index

    def start(self) -> None:
        self._handle = pynvml.nvmlDeviceGetHandleByIndex(self._index)
        uuid = pynvml.nvmlDeviceGetUUID(self._handle)
        self._uuid = uuid.decode() if isinstance(uuid, bytes) else uuid
        # A GPU that is split into instances, for example, has no utilization.
        figures = {"gpu_util": self._utilization, "gpu_free_memory": self._free_memory}
        self._figures = {name: read for name, read in figures.items() if _is_supported(read)}

    def sample(self) -> Mapping[str, float]:
        return {f"{name}.{self._uuid}": read() for name, read in self._figures.items()}

    def _utilization(self) -> float:
        return float(pynvml.nvmlDeviceGetUtilizationRates(self._handle).gpu)

    def _free_memory(self) -> float:
        return float(pynvml.nvmlDeviceGetMemoryInfo(self._handle).free)


def _is_supported(read: Callable[[], float]) -> bool:
    try:
        read()
    except pynvml.NVMLError_NotSupported:
        return False
    return True
