"""The names of this machine's GPUs: UUIDs, which are the same for all users and programs.

NVIDIA's driver tells them in Linux's /proc, which takes no time. It does not for instances of MIG, nor for a GPU that
nothing has used since the driver was loaded: only then `nvidia-smi` is asked, which takes seconds.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path

import msgspec
from msgspec.structs import replace

from core_sdk.errors import SlotError

_DRIVER = Path("/proc/driver/nvidia")
_DEVICES = Path("/dev")
_LISTED = re.compile(r"^(?P<indent>\s*).*\(UUID: (?P<name>[^)]+)\)", re.MULTILINE)


class ListedGpu(msgspec.Struct, frozen=True):
    """A GPU of this machine."""

    uuid: str
    instances: tuple[str, ...] = ()
    """The instances of MIG into which it is split."""

    @property
    def slots(self) -> Sequence[str]:
        return self.instances or (self.uuid,)


def gpus_here(driver: Path = _DRIVER, devices: Path = _DEVICES) -> list[ListedGpu]:
    """Returns all GPUs that this process may use, in the order of their buses. Raises `SlotError`."""
    found = [_Information(path) for path in sorted((driver / "gpus").iterdir())] if (driver / "gpus").is_dir() else []
    # A scheduler may have hidden the others from this process.
    found = [gpu for gpu in found if os.access(devices / f"nvidia{gpu.minor}", os.R_OK | os.W_OK)]
    is_split = any(True for gpu in found for _ in driver.glob(f"capabilities/gpu{gpu.minor}/mig/gi*"))
    if is_split or any("?" in gpu.uuid for gpu in found):
        return _listed_gpus()
    return [ListedGpu(gpu.uuid) for gpu in found]


def slots_named(named: Sequence[str], find: Callable[[], Sequence[ListedGpu]]) -> list[str]:
    """Returns the UUIDs of the GPUs, and instances of MIG, that CUDA_VISIBLE_DEVICES leaves visible.

    It names GPUs by index, and GPUs and instances by the beginning of a UUID. A GPU that is split stands for all of its
    instances. As in CUDA, a name that is unknown or ambiguous hides all that comes after it, and a GPU that is named
    twice hides all. Where `find` finds no GPU, or has only instances to find, the names are returned as they are.
    """
    known = find() if any(not name.startswith("MIG-") for name in named) else ()
    if not known:
        return list(named)
    found = list(takewhile(bool, (_slots_of(name, known) for name in named)))
    if len(set(found)) < len(found):
        return []
    return list(dict.fromkeys(slot for slots in found for slot in slots))


def _slots_of(name: str, known: Sequence[ListedGpu]) -> Sequence[str]:
    """Returns the slots of a GPU or an instance; empty if there is none of that name, or more than one."""
    if name.isdecimal():
        return known[int(name)].slots if int(name) < len(known) else ()
    found = [gpu.slots for gpu in known if gpu.uuid.startswith(name)]
    found += [(instance,) for gpu in known for instance in gpu.instances if instance.startswith(name)]
    return found[0] if len(found) == 1 else ()


class _Information:
    """A GPU as the driver describes it in a file."""

    def __init__(self, path: Path) -> None:
        lines = (line.partition(":") for line in (path / "information").read_text().splitlines())
        told = {name.strip(): value.strip() for name, _, value in lines}
        self.uuid = told.get("GPU UUID", "?")
        self.minor = told.get("Device Minor", "?")


def _listed_gpus() -> list[ListedGpu]:
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise SlotError(
            "this machine has GPUs whose names only `nvidia-smi -L` tells, since they are split, or have not been used "
            f"yet, and it does not: {error}. Name those to use by their UUIDs in CUDA_VISIBLE_DEVICES."
        ) from error
    gpus: list[ListedGpu] = []
    for indent, name in _LISTED.findall(listed):
        if indent and gpus:  # an instance of the GPU above it
            gpus[-1] = replace(gpus[-1], instances=(*gpus[-1].instances, name))
        else:
            gpus.append(ListedGpu(name))
    return gpus
