"""Reads CUDA_VISIBLE_DEVICES as CUDA does."""

from __future__ import annotations

import re
from itertools import takewhile

_INDEX = re.compile(r"\+?(\d+)")


def named_gpus(text: str) -> list[str]:
    """Returns the names of GPUs in a value of CUDA_VISIBLE_DEVICES: indices, and UUIDs or their beginnings. Pure.

    What names no GPU, such as -1, hides all that comes after it. A name that comes twice hides all.
    """
    names = list(takewhile(bool, map(_name_in, text.split(","))))
    return names if len(set(names)) == len(names) else []


def _name_in(part: str) -> str:
    """Returns the name that this part of the list gives; empty if it gives none. CUDA reads `1gpu` as 1."""
    part = part.strip()
    if part.startswith(("GPU-", "MIG-")):
        return part
    index = _INDEX.match(part)
    return str(int(index[1])) if index else ""
