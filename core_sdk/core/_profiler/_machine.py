"""All sources of figures on this machine: what psutil knows, and the GPUs."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil

from core_sdk._ground.data.waits import DataWait
from core_sdk.core._profiler._collector import FigureSource


def process_sources() -> Iterator[FigureSource]:
    """Yields the sources of figures of this process."""
    process = psutil.Process()
    yield _Gauge(
        "process",
        "process",
        lambda: {"process_cpu_util": process.cpu_percent(), "process_rss": process.memory_info().rss},
    )
    yield _Rates("process traffic", "process", lambda: _process_counters(process))
    yield _Rates("data", "process", lambda: {"data_wait": 100 * DataWait.of_process.total_s})
    if sys.platform == "linux":
        yield _Rates("workers", "process", lambda: {"workers_cpu_util": 100 * _cpu_s_of_started(process)})
        yield _Rates("main thread", "process", _main_thread_counters)


def usual_sources() -> Iterator[FigureSource]:
    """Yields the sources of figures of this node that cost next to nothing."""
    yield _Gauge("cpu", "cpu", lambda: {"cpu_util_simple": psutil.cpu_percent()})
    yield _Gauge("memory", "memory", lambda: {"memory_free": psutil.virtual_memory().available})
    if importlib.util.find_spec("pynvml") is not None:
        from core_sdk.core._profiler._gpus import gpus  # needs the extra "gpu"

        yield from gpus()


def machine_sources(records: Path) -> Iterator[FigureSource]:
    """Yields all sources of figures on this machine. `records` is a path on the disk that must not fill up."""
    disks = [str(path) for path in sorted({Path("/"), mount_point(records)})]
    yield from usual_sources()
    yield _Gauge("disk space", "disk", lambda: {f"disk_util.{path}": psutil.disk_usage(path).percent for path in disks})
    yield _Rates("disk traffic", "disk", _disk_counters)
    yield _Rates("network", "network", _network_counters)
    yield from process_sources()


def mount_point(path: Path) -> Path:
    """Returns the directory on which the file system that holds `path` is mounted."""
    path = path.resolve()
    # `Path.is_mount` raises without permission; on a node that does not see the home, all but "/" may be missing.
    return next(parent for parent in (path, *path.parents) if os.path.ismount(parent))


class _Gauge:
    """Figures as they are read."""

    def __init__(self, name: str, group: str, read: Callable[[], Mapping[str, float]]) -> None:
        self.name = name
        self.group = group
        self.sample = read

    def start(self) -> None:
        self.sample()  # psutil counts the use of processors from one reading to the next


class _Rates:
    """Counters, as changes per second."""

    def __init__(self, name: str, group: str, read: Callable[[], Mapping[str, float]]) -> None:
        self.name = name
        self.group = group
        self._read = read

    def start(self) -> None:
        self._counters, self._time = self._read(), time.monotonic()

    def sample(self) -> Mapping[str, float]:
        before, time_before = self._counters, self._time
        self.start()
        # A disk or interface that disappears takes its counts away.
        changes = {name: max(0, count - before[name]) for name, count in self._counters.items()}
        return {name: change / (self._time - time_before) for name, change in changes.items()}


def _process_counters(process: psutil.Process) -> dict[str, int]:
    if not hasattr(process, "io_counters"):  # macOS has none
        return {}
    counters = process.io_counters()
    return {"process_read": counters.read_bytes, "process_written": counters.write_bytes}


def _cpu_s_of_started(process: psutil.Process) -> float:
    """Returns the processor time of all that a process has started, such as the workers of loaders, also what ended."""
    total_s = 0.0
    for pid in [process.pid, *_started_by(process.pid)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = (process if pid == process.pid else psutil.Process(pid)).cpu_times()
            total_s += times.children_user + times.children_system  # of children that have ended
            total_s += 0.0 if pid == process.pid else times.user + times.system
    return total_s


def _started_by(pid: int) -> Iterator[int]:
    """Yields the processes below this one. psutil would read the states of all processes of the machine."""
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                for child in map(int, (task / "children").read_text().split()):
                    yield child
                    yield from _started_by(child)


def _main_thread_counters() -> dict[str, float]:
    """Returns the time for which the main thread has computed; nothing with CUDA, which waits by computing, too."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return {}
    clock = time.pthread_getcpuclockid(threading.main_thread().ident or 0)
    return {"compute": 100 * time.clock_gettime(clock)}


def _disk_counters() -> dict[str, int]:
    counters = psutil.disk_io_counters()
    if counters is None:
        raise OSError("the system shows no disk counters, as in some containers")
    return {
        "disk_iops": counters.read_count + counters.write_count,
        "disk_throughput_read": counters.read_bytes,
        "disk_throughput_write": counters.write_bytes,
    }


def _network_counters() -> dict[str, int]:
    counters = psutil.net_io_counters()
    if counters is None:
        raise OSError("the system shows no network interfaces")
    return {"net_throughput_sent": counters.bytes_sent, "net_throughput_recv": counters.bytes_recv}
