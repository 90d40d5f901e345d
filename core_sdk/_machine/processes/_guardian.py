"""Guardians, which end the processes of a training if the process that supervises them is killed.

Agents, launchers, worker groups and the programs that `ssh` starts on other hosts are *supervisors*. They nest: an
agent runs a launcher, whose rank may run another one. The rule is the same for each of them:

1. A supervisor has a mark, an environment variable with a name of its own, which it gives to all that it starts. The
   processes below inherit it. So a process carries the marks of all supervisors above it.
2. A supervisor has a guardian, which carries the marks of the supervisors above, but not its own supervisor's. If the
   supervisor is gone without a word, the guardian kills all that carries its mark, and all processes in the sessions
   of its ranks, again and again, until none is left.
3. A guardian spares other guardians, and waits for them. Their supervisors carry its mark and are dead, so that they
   do the same for what is theirs. One that needs too long is killed: what it was to end carries the outer mark, too.
4. A supervisor starts another guardian if its own is killed.
5. An agent carries no mark of a supervisor above: its attempt outlives the process that started it.

So if any process is killed, or several at once, the outermost guardian that lives finds all that is left. If there is
none, `core-sdk trial kill` does what the agent's guardian would have done.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Collection
from pathlib import Path

from core_sdk._ground.descriptors import KeptDescriptor
from core_sdk._machine.processes._signals import start_helper

# The guardian's program needs the standard library only; psutil, too, where there is no /proc.
_ISOLATION = ("-I", "-S") if sys.platform == "linux" else ("-I",)
_PROGRAM = Path(__file__).with_name("_guardian_process.py")
_DETACHED = "--detached"
_END_S = 5.0
# How long a guardian must have run for another one to be started at once.
_LEAST_S = 1.0

_open: weakref.WeakSet[Guardian] = weakref.WeakSet()


class Guardian:
    """The supervisor's side of a guardian, which runs from construction to `dismiss` or `end_all`. Thread-safe."""

    def __init__(
        self, directory: Path | None, mark: str, *, is_detached: bool = False, held: Collection[int] = ()
    ) -> None:
        """The guardian removes `directory`, if any, and kills processes with `mark` (`NAME=value`) in the environment.

        `is_detached`: the guardian does not stay a child of this process, so that it survives if this process is killed
        together with its children. Such a guardian cannot be waited for, and is not replaced. The guardian keeps the
        descriptors `held`, such as this process's locks, open while it lives.
        """
        self.mark = mark
        self._arguments = [str(directory or ""), mark, *([_DETACHED] if is_detached else [])]
        # Copies, since an `AliveLock` closes its own descriptor in forked children.
        self._held = [KeptDescriptor(os.dup(descriptor)) for descriptor in held]
        self._guarded: set[int] = set()
        self._to_guardian: KeptDescriptor | None = None
        self._is_over = False
        self._lock = threading.Lock()
        _open.add(self)
        self._start()
        if not is_detached:
            threading.Thread(target=self._replace_killed, name="core-sdk-guardian", daemon=True).start()

    def _start(self) -> None:
        from_supervisor, to_guardian = os.pipe()
        self._to_guardian = KeptDescriptor(to_guardian)
        arguments = [*_ISOLATION, _PROGRAM, *self._arguments]
        held = [each.fileno() for each in self._held if each.is_ours()]
        try:
            self._process = start_helper(
                arguments, cwd="/", stdin=from_supervisor, stderr=subprocess.DEVNULL, pass_fds=held
            )
        except BaseException:
            # Without the lock, which `_replace_killed` holds, and the constructor does not need.
            self._is_over = True
            self._close_descriptors()
            raise
        finally:
            os.close(from_supervisor)

    def guard(self, pid: int) -> None:
        """Adds a process that leads a session of its own."""
        with self._lock:
            self._guarded.add(pid)
            self._tell(f"+{pid}")

    def release(self, pid: int) -> None:
        """Removes a process that has ended, together with all that it left behind."""
        with self._lock:
            self._guarded.discard(pid)
            self._tell(f"-{pid}")

    def dismiss(self) -> None:
        """Tells the guardian that nothing is left to end, and waits for its exit. One that is stopped is killed.

        After `end_all` it only waits, for a limited time.
        """
        with self._lock:
            has_told = not self._is_over
            self._tell(".")
        self.end_all()
        try:
            self._process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            if has_told:
                self._process.kill()
                self._process.wait()

    def end_all(self) -> None:
        """Makes the guardian kill all and remove the directory, as if the supervisor had died. Does not wait."""
        with self._lock:
            self._is_over = True
            self._close_descriptors()

    def _tell(self, line: str) -> None:
        # If the guardian was killed, the next one gets all lines again.
        if self._to_guardian is not None:
            with contextlib.suppress(OSError):
                os.write(self._to_guardian.checked(), f"{line}\n".encode())

    def _replace_killed(self) -> None:
        while True:
            began_at = time.monotonic()
            with contextlib.suppress(ChildProcessError):  # this process ignores SIGCHLD
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            if time.monotonic() - began_at < _LEAST_S:
                time.sleep(_LEAST_S)  # limits how often a guardian that cannot run is started
            with self._lock:
                if self._is_over:
                    return
                self._close_pipe()
                self._process.wait()
                try:
                    self._start()
                except OSError:  # no process can be started: the training goes on without a guardian
                    return
                for pid in self._guarded:
                    self._tell(f"+{pid}")

    def _close_descriptors(self) -> None:
        self._close_pipe()
        for descriptor in self._held:
            descriptor.close()
        self._held = []

    def _close_pipe(self) -> None:
        if self._to_guardian is not None:
            self._to_guardian.close()
            self._to_guardian = None


def _leave_to_parent() -> None:
    """Closes, in a forked child, the pipes to guardians, which live until no process can write to them."""
    for guardian in list(_open):
        guardian._close_descriptors()
        guardian._is_over = True


os.register_at_fork(after_in_child=_leave_to_parent)
