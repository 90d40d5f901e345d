"""A standby: a process that an agent forks before it does anything else, and that becomes the attempt's command."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from core_sdk._execution.agent._messages import AgentOrder
from core_sdk._execution.agent.warm.becoming import Beginning, become
from core_sdk._execution.agent.warm.programs import PythonProgram, differing, program_of
from core_sdk._ground.typed_lines import from_line, to_line

_CHUNK_BYTES = 1 << 16
_DESCRIPTORS = Path("/proc/self/fd")
_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri")
_GOING = b"+"
# A standby answers at once, unless it is stopped.
_PATIENCE_S = 10.0
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


class Standby:
    """The agent's side of a standby."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._variables: Mapping[str, str] = {}
        self._changes: Mapping[str, str] = {}
        self._connection = connection

    def learn(self, variables: Mapping[str, str], changed: Mapping[str, str]) -> None:
        """Keeps with which environment the libraries were imported, and what they have `changed` it to."""
        self._variables = variables
        self._changes = {name: changed[name] for name in differing(changed, variables) & changed.keys()}

    def begin(self, order: AgentOrder, variables: dict[str, str], output: int) -> bool:
        """Lets the standby become the command of an order, in an environment. Returns False if it has to begin afresh.

        The standby has ended then.
        """
        program = program_of(order.argv)
        if program is not None and self._fits(program, order, variables):
            # A fresh Python that imports the libraries has their changes, too.
            beginning = Beginning(program, order.cwd, {**variables, **self._changes}, order.mask)
            with contextlib.suppress(OSError):  # somebody has killed or stopped it
                socket.send_fds(self._connection, [to_line(beginning)], [output])
                if self._connection.recv(len(_GOING)) == _GOING:
                    self._connection.close()
                    return True
        os.kill(self.pid, signal.SIGKILL)
        self._connection.close()
        self.wait()
        return False

    def wait(self) -> int:
        """Reaps the process. Returns its exit status, or -N for death by signal N."""
        if self.returncode is None:
            try:
                self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            except ChildProcessError:  # this process ignores SIGCHLD
                self.returncode = 0
        return self.returncode

    def _fits(self, program: PythonProgram, order: AgentOrder, variables: dict[str, str]) -> bool:
        """Returns whether a fresh Python would begin the program in the same way."""
        if order.has_stdin or order.screen or differing(variables, self._variables):
            return False
        python = shutil.which(program.python, path=variables.get("PATH"))
        if python is None or not _are_same(Path(order.cwd, python), Path(sys.executable)):
            return False
        return program.is_module or Path(order.cwd, program.name).is_file()


def fork_standby(inherited: Sequence[int]) -> Standby | None:
    """Forks a standby of this process, which must have done nothing yet. Returns None in the standby, at its end.

    The standby closes the descriptors that only its agent may have.
    """
    agent = os.getpid()
    ours, theirs = socket.socketpair()
    if (pid := os.fork()) != 0:
        theirs.close()
        ours.settimeout(_PATIENCE_S)
        return Standby(pid, ours)
    ours.close()
    for descriptor in inherited:
        os.close(descriptor)
    _stand_by(agent, theirs)
    return None


def is_clean() -> bool:
    """Returns whether this process, which has imported libraries, can be forked: they started nothing, used no GPU."""
    if threading.active_count() > 1:
        return False
    with contextlib.suppress(OSError):
        opened = [str(each.readlink()) for each in _DESCRIPTORS.iterdir() if each.is_symlink()]
        return not any(path.startswith(_DEVICES) for path in opened)
    return False


def _stand_by(agent: int, connection: socket.socket) -> None:
    """Waits for the agent's word, and becomes the program. Ends at once without it."""
    if sys.platform == "linux":
        # Somebody may kill the agent and its guardian. Then the kernel kills this process.
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != agent:
            os._exit(1)
    message, descriptors, _, _ = socket.recv_fds(connection, _CHUNK_BYTES, 1)
    while not message.endswith(b"\n"):
        chunk = connection.recv(_CHUNK_BYTES) if message else b""
        if not chunk:
            os._exit(0)
        message += chunk
    beginning = from_line(message, Beginning)
    connection.sendall(_GOING)
    connection.close()
    # The program ends as every Python does. The spawner's program is the main module until it begins.
    atexit.unregister(sys.modules["__main__"].exit_at_once)
    become(beginning, descriptors[0])


def _are_same(python: Path, other: Path) -> bool:
    """Returns whether two commands are one interpreter in one environment, which its directory tells."""
    return python.parent.resolve() == other.parent.resolve() and python.resolve() == other.resolve()
