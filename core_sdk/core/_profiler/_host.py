"""What psutil knows of the machine."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil


class Processor:
    name = group = "cpu"

    def start(self) -> None:
        psutil.cpu_percent()

    def sample(self) -> Mapping[str, float]:
        return {"cpu_util_simple": psutil.cpu_percent()}


class Memory:
    name = group = "memory"

    def start(self) -> None:
        self.sample()

    def sample(self) -> Mapping[str, float]:
        return {"memory_free": psutil.virtual_memory().available}


class DiskSpace:
    """How full the file systems of some paths are, in percent."""

    name = "disk space"
    group = "disk"

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = [str(path) for path in paths]

    def start(self) -> None:
        self.sample()

    def sample(self) -> Mapping[str, float]:
        return {f"disk_util.{path}": psutil.disk_usage(path).percent for path in self._paths}


class DiskTraffic:
    """Operations and bytes per second, over all disks."""

    name = "disk traffic"
    group = "disk"

    def start(self) -> None:
        self._rates = _Rates(self._counters())

    def sample(self) -> Mapping[str, float]:
        return self._rates.update(self._counters())

    def _counters(self) -> dict[str, int]:
        counters = psutil.disk_io_counters()
        if counters is None:
            raise OSError("the system shows no disk counters, as in some containers")
        return {
            "disk_iops": counters.read_count + counters.write_count,
            "disk_throughput_read": counters.read_bytes,
            "disk_throughput_write": counters.write_bytes,
        }


class Network:
    """Bytes per second, over all interfaces."""

    name = group = "network"

    def start(self) -> None:
        self._rates = _Rates(self._counters())

    def sample(self) -> Mapping[str, float]:
        return self._rates.update(self._counters())

    def _counters(self) -> dict[str, int]:
        counters = psutil.net_io_counters()
        if counters is None:
            raise OSError("the system shows no network interfaces")
        return {"net_throughput_sent": counters.bytes_sent, "net_throughput_recv": counters.bytes_recv}


class OwnProcess:
    """The training process alone: resident bytes, and processor time in percent of one core."""

    name = group = "process"

    def start(self) -> None:
        self._process = psutil.Process()
        self._process.cpu_percent()

    def sample(self) -> Mapping[str, float]:
        with self._process.oneshot():
            return {
                "process_cpu_util": self._process.cpu_percent(),
                "process_rss": self._process.memory_info().rss,
            }


def mount_point(path: Path) -> Path:
    """Where the file system that holds `path` is mounted."""
    path = path.resolve()
    # `Path.is_mount` raises where one may not look; on a node without the home, all but "/" may be missing.
    return next(parent for parent in (path, *path.parents) if os.path.ismount(parent))


class _Rates:
    """Counters as changes per second."""

    def __init__(self, counters: dict[str, int]) -> None:
        self._counters = counters
        self._time = time.monotonic()

    def update(self, counters: dict[str, int]) -> dict[str, float]:
        now = time.monotonic()
        # A disk or interface that goes takes its counts away.
        changes = {name: max(0, count - self._counters[name]) for name, count in counters.items()}
        rates = {name: change / (now - self._time) for name, change in changes.items()}
        self._counters, self._time = counters, now
        return rates
