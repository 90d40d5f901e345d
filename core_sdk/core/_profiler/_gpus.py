"""Figures of this node's NVIDIA GPUs, from NVML."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pynvml

# By the hardware or by heat: nvmlClocksThrottleReasonHwSlowdown, SwThermalSlowdown, HwThermalSlowdown and
# HwPowerBrakeSlowdown. A GPU that works hard is always slowed down by its power limit, which is none of them.
_SLOWED = 0x8 | 0x20 | 0x40 | 0x80


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
        figures = {
            "gpu_util": self._utilization,
            "gpu_free_memory": self._free_memory,
            "gpu_used_memory": self._used_memory,
            "gpu_power": self._power,
            "gpu_temperature": self._temperature,
            "gpu_throttled": self._throttled,
            "gpu_ecc_errors": self._ecc_errors,
        }
        self._figures = {name: read for name, read in figures.items() if _is_supported(read)}

    def sample(self) -> Mapping[str, float]:
        return {f"{name}.{self._uuid}": read() for name, read in self._figures.items()}

    def _utilization(self) -> float:
        return float(pynvml.nvmlDeviceGetUtilizationRates(self._handle).gpu)

    def _free_memory(self) -> float:
        return float(pynvml.nvmlDeviceGetMemoryInfo(self._handle).free)

    def _used_memory(self) -> float:
        return float(pynvml.nvmlDeviceGetMemoryInfo(self._handle).used)

    def _power(self) -> float:
        return float(pynvml.nvmlDeviceGetPowerUsage(self._handle)) / 1000

    def _temperature(self) -> float:
        return float(pynvml.nvmlDeviceGetTemperature(self._handle, pynvml.NVML_TEMPERATURE_GPU))

    def _throttled(self) -> float:
        """Returns 100 if it is slowed down, so that the mean is the percentage of the time."""
        return 100.0 * bool(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle) & _SLOWED)

    def _ecc_errors(self) -> float:
        """Returns the number of errors since the driver was loaded that could not be corrected."""
        uncorrected, since_load = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
        return float(pynvml.nvmlDeviceGetTotalEccErrors(self._handle, uncorrected, since_load))


def _is_supported(read: Callable[[], float]) -> bool:
    try:
        read()
    except (pynvml.NVMLError_NotSupported, AttributeError):  # the binding or the driver is older
        return False
    return True
