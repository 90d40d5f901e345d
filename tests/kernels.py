"""The kernel of a notebook, as Jupyter starts it."""

from __future__ import annotations

import os
import signal
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


def run(kernel: Any, code: str, *, interrupted: bool = False) -> str:
    """Returns what a cell has printed, and the traceback of its error. Interrupts it at its first output."""
    request, shown = kernel.execute(code), ""
    while True:
        message = kernel.get_iopub_msg(timeout=TIMEOUT_S)
        content = message["content"]
        if message["parent_header"].get("msg_id") != request:
            continue
        if message["msg_type"] == "stream":
            shown += content["text"]
            if interrupted and content["text"].strip().isdecimal():
                os.kill(int(content["text"]), signal.SIGINT)  # as the button does
        elif message["msg_type"] == "error":
            shown += "\n".join(content["traceback"])
        elif message["msg_type"] == "status" and content["execution_state"] == "idle":
            return shown
