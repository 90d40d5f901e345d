"""The names of this machine's GPUs: UUIDs, which are the same for all users and programs.

NVIDIA's driver tells them in Linux's /proc, which takes no time. It does not for instances of MIG, nor for a GPU that
nothing has used since the driver was loaded: only then `nvidia-smi` is asked, which takes seconds.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from core_sdk.errors import SlotError

_DRIVER = Path("/proc/driver/nvidia")
_DEVICES = Path("/dev")
_LISTED = re.compile(r"^(?P<indent>\s*).*\(UUID: (?P<name>[^)]+)\)", re.MULTILINE)


def gpus_here(driver: Path = _DRIVER, devices: Path = _DEVICES) -> list[str]:
    """Returns the names of all GPUs and instances of MIG that this process may use, in the order of their buses.

    Raises `SlotError`.
    """
    found = [_Gpu(path) for path in sorted((driver / "gpus").iterdir())] if (driver / "gpus").is_dir() else []
    # A scheduler may have hidden the others from this process.
    found = [gpu for gpu in found if os.access(devices / f"nvidia{gpu.minor}", os.R_OK | os.W_OK)]
    is_split = any(True for gpu in found for _ in driver.glob(f"capabilities/gpu{gpu.minor}/mig/gi*"))
    if is_split or any("?" in gpu.uuid for gpu in found):
        return _listed_gpus()
    return [gpu.uuid for gpu in found]


def full_names(named: Sequence[str], find: Callable[[], Sequence[str]]) -> list[str]:
    """Returns the UUIDs of GPUs that CUDA_VISIBLE_DEVICES names by index, or by the beginning of the UUID.

    A name that `find`, the machine's GPUs, does not have is returned as it is.
    """
    known = find() if any(name.isdecimal() or name.startswith("GPU-") for name in named) else ()
    return [_full_name(name, known) for name in named]


def _full_name(name: str, known: Sequence[str]) -> str:
    if name.isdecimal():
        return known[int(name)] if int(name) < len(known) else name
    return next((full for full in known if full.startswith(name)), name)


class _Gpu:
    """A GPU as the driver describes it in a file."""

    def __init__(self, path: Path) -> None:
        lines = (line.partition(":") for line in (path / "information").read_text().splitlines())
        told = {name.strip(): value.strip() for name, _, value in lines}
        self.uuid = told.get("GPU UUID", "?")
        self.minor = told.get("Device Minor", "?")


def _listed_gpus() -> list[str]:
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise SlotError(
            "this machine has GPUs whose names only `nvidia-smi -L` tells, since they are split, or have not been used "
            f"yet, and it does not: {error}. Name those to use by their UUIDs in CUDA_VISIBLE_DEVICES."
        ) from error
    return list(_without_split(_LISTED.findall(listed)))


def _without_split(listed: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yields the names of GPUs; of a GPU that is split, the names of its instances, which are indented below it."""
    for (indent, name), (next_indent, _) in zip(listed, [*listed[1:], ("", "")], strict=True):
        if len(next_indent) <= len(indent):
            yield name
