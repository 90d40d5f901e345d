"""Asks NVML which GPUs are in use, by any user."""

from __future__ import annotations

from collections.abc import Iterator

from core_sdk.errors import MissingDependencyError

try:
    import pynvml
except ImportError as error:
    raise MissingDependencyError("nvidia-ml-py", "gpu", "avoiding busy GPUs") from error

# A driver, or a desktop, takes less of a GPU's memory than this part.
_FILLED = 0.1


def busy_gpus() -> set[str]:
    """Returns the UUIDs of GPUs, and of instances of MIG, of whose memory more than a tenth is in use."""
    try:
        # Never shut down: others in this process may use NVML, too.
        pynvml.nvmlInit()
        return set(_busy())
    except pynvml.NVMLError:  # no driver
        return set()


def _busy() -> Iterator[str]:
    for index in range(pynvml.nvmlDeviceGetCount()):
        gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
        for device in (gpu, *_instances(gpu)):
            try:
                memory = pynvml.nvmlDeviceGetMemoryInfo(device)
            except pynvml.NVMLError:  # it is split, and its instances tell theirs
                continue
            if memory.used > _FILLED * memory.total:
                uuid = pynvml.nvmlDeviceGetUUID(device)
                yield uuid.decode() if isinstance(uuid, bytes) else uuid


def _instances(gpu: object) -> Iterator[object]:
    try:
        num_instances = pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)
    except pynvml.NVMLError:
        return
    for index in range(num_instances):
        try:
            yield pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
        except pynvml.NVMLError:  # there are fewer
            return
