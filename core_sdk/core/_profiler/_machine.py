"""All sources of this machine."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

from core_sdk.core._profiler._host import (
    DiskSpace,
    DiskTraffic,
    Memory,
    Network,
    OwnProcess,
    Processor,
    mount_point,
)
from core_sdk.core._profiler._sources import Source


def machine_sources(records: Path) -> Iterator[Source]:
    """`records` is a path on the disk that must not fill up."""
    yield Processor()
    yield Memory()
    yield DiskSpace(sorted({Path("/"), mount_point(records)}))
    yield DiskTraffic()
    yield Network()
    yield OwnProcess()
    if importlib.util.find_spec("pynvml") is not None:
        from core_sdk.core._profiler._gpus import gpus  # needs the extra "gpu"

        yield from gpus()
