"""Takes the right from root to read what its mode forbids, so that a test sees what every other user sees."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

_VERSION_3 = 0x20080522
_OVERRIDES = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


@contextlib.contextmanager
def powerless() -> Iterator[None]:
    """Within the block, this thread may read only what the mode of a file permits, whoever it belongs to."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable, twice
    assert libc.capget(header, sets) == 0
    before = sets[0]
    sets[0] = before & ~_OVERRIDES
    assert libc.capset(header, sets) == 0
    try:
        yield
    finally:
        sets[0] = before
        assert libc.capset(header, sets) == 0
