"""Asks processes for their Python stacks, and looks at those that cannot answer. Linux."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path

from core_sdk._execution.agent.stalls._diagnosis import ProcessState, main_thread
from core_sdk._ground.signs import SIGNAL

_ANSWER_S = 2.0
_QUIET_S = 0.5
_POLL_S = 0.01
_PY_SPY_S = 20.0
# The last frame of the main thread, which comes last.
_LAST_FRAMES = (b" in <module>\n", b" in _run_module_as_main\n")


def process_state(pid: int, stacks: Path) -> tuple[ProcessState, str]:
    """Returns where a process stands, and the stacks that it has written into its file; empty if it does not answer."""
    letter = _state_letter(pid)
    if letter in ("", "Z", "X"):
        return ProcessState(pid, state="has ended"), ""
    if letter in ("T", "t"):
        return ProcessState(pid, state=f"was stopped by a signal: `kill -CONT {pid}` lets it go on"), ""
    state = f"cannot be interrupted: it waits in {_wait_of(pid)}" if letter == "D" else ""
    text = _asked(pid, stacks) if _answers(pid) else ""  # of a thread that can answer, about all of them
    if text or state:
        return ProcessState(pid, main_thread(text), state), text
    return ProcessState(pid, state=f"does not answer, and waits in {_wait_of(pid)}"), ""


def children_of(pid: int) -> list[int]:
    """Returns the children of a process that can be asked for their stacks: what it has forked."""
    with contextlib.suppress(OSError):
        tasks = Path(f"/proc/{pid}/task")
        found = [int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()]
        return sorted(child for child in found if _answers(child) or _state_letter(child) in ("T", "D"))
    return []


def native_stacks(pid: int) -> str:
    """Returns the stacks with those of C, by py-spy; empty if it is not installed or may not look."""
    if (program := shutil.which("py-spy")) is None:
        return ""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = [program, "dump", "--native", "--pid", str(pid)]
        return subprocess.run(command, capture_output=True, text=True, timeout=_PY_SPY_S).stdout
    return ""


def _asked(pid: int, stacks: Path) -> str:
    """Returns what the process writes into the file when it is asked. What it has written before is dropped."""
    with contextlib.suppress(OSError):
        os.truncate(stacks, 0)  # a rank that waits for others is asked for as long as they work
        os.kill(pid, SIGNAL)
        text, since = b"", time.monotonic()
        deadline = since + _ANSWER_S
        while (now := time.monotonic()) < deadline:
            newest = stacks.read_bytes()
            if newest and newest == text and (text.endswith(_LAST_FRAMES) or now - since > _QUIET_S):
                break
            text, since = newest, since if newest == text else now
            time.sleep(_POLL_S)
        return text.decode(errors="replace")
    return ""


def _answers(pid: int) -> bool:
    """Returns whether the process has a handler for the signal: any other one would die of it."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (SIGNAL - 1) & 1)
    return False


def _state_letter(pid: int) -> str:
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def _wait_of(pid: int) -> str:
    """Names what a process waits for in the kernel, with the file of the call if that is known."""
    where = "the kernel"
    with contextlib.suppress(OSError):
        where = Path(f"/proc/{pid}/wchan").read_text().strip("0\n") or where
    with contextlib.suppress(OSError, IndexError, ValueError):
        descriptor = int(Path(f"/proc/{pid}/syscall").read_text().split()[1], 16)
        return f"{where}, with {Path(f'/proc/{pid}/fd/{descriptor}').readlink()}"
    return where
