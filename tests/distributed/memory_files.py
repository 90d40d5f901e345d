"""What tests of large objects share: how large they are, and what this process holds of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from core_sdk.distributed.transport._memory_file import MIN_BYTES, are_memory_files_available

requires_memory_files = pytest.mark.skipif(
    not are_memory_files_available(),
    reason="NOT TESTED: large objects as memory files; this system has no memfd_create, and they travel as bytes",
)

LARGE = 3 * MIN_BYTES


def num_descriptors() -> int:
    return len(own_descriptors())


def num_memory_files() -> int:
    return sum("memfd:core-sdk" in _target(path) for path in own_descriptors())


def own_descriptors() -> list[Path]:
    return list(Path("/proc/self/fd").iterdir())


def _target(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:  # the directory itself
        return ""
