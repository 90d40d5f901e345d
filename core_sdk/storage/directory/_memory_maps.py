"""The files that this process can change through mapped memory."""

from __future__ import annotations

from pathlib import Path

_MAPS = Path("/proc/self/maps")


def writable_mappings() -> set[int]:
    """The inodes of files that are mapped to be written (`mmap`, `numpy.memmap`); on Linux only, elsewhere none."""
    try:
        lines = _MAPS.read_text(errors="replace").splitlines()
    except OSError:
        return set()
    fields = (line.split(maxsplit=5) for line in lines)
    # Address, rights, offset, device, inode, path.
    return {int(inode) for _, rights, _, _, inode, *_ in fields if rights[1] == "w" and rights[3] == "s"}
