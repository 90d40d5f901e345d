"""The kernel of a notebook, as Jupyter starts it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from processes import TIMEOUT_S


@pytest.fixture
def kernel() -> Iterator[Any]:
    """The client of a kernel that has just started."""
    from jupyter_client.manager import start_new_kernel

    manager, kernel = start_new_kernel(startup_timeout=TIMEOUT_S)
    yield kernel
    kernel.stop_channels()
    manager.shutdown_kernel(now=True)
