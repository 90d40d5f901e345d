"""The agent's process, `python -P -m core_sdk._execution.agent`, whose stdin is a socket to its starter."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from core_sdk._execution.agent._messages import (
    AgentAnswer,
    AgentMessage,
    AgentOrder,
    CommandEnded,
    CommandNotStarted,
    CommandStarted,
    ResizeTerminal,
    SendSignal,
    TypeInput,
)
from core_sdk._execution.agent._plain_lines import PlainLines
from core_sdk._execution.agent.stalls import StallWatch
from core_sdk._execution.agent.warm.standby import Standby, fork_standby, is_clean
from core_sdk._execution.experiments.reviving import revive_master
from core_sdk._execution.messages import FullDisks, NewAlerts, post_end, post_of_trial
from core_sdk._ground.alive import AliveLock
from core_sdk._ground.environment import replace_variables
from core_sdk._ground.environment.names import RUN_INFO_VARIABLE, SIGNS_VARIABLE
from core_sdk._ground.ownership import give_to_owner_of
from core_sdk._ground.records import ExitRecord, Settled
from core_sdk._ground.typed_lines import from_line, to_line
from core_sdk._home.attempts.ending import end_attempt, goes_back
from core_sdk._home.folders import TrialFolder
from core_sdk._home.pushes import keep_pushing
from core_sdk._machine.processes import Guardian, RankProcesses, Traces, describe_marked, end_left, end_marked
from core_sdk._machine.processes.output import Outlet
from core_sdk._machine.slots import Ticket
from core_sdk.errors import CoreSDKError

_STDIN = 0
_STDOUT = 1
_STDERR = 2
_CHUNK_BYTES = 1 << 16
_MOST_DESCRIPTORS = 4
# A screen that takes nothing for this long has stalled.
_PATIENCE_S = 0.5
# How long processes that the command leaves behind may go on: with their output, and after SIGTERM.
_LAST_OUTPUT_S = 2.0
_END_S = 2.0
# How long a command whose time is over may take to save and stop.
_LIMIT_GRACE_S = 30.0
_ASKED_S = 2.0
# Between two looks for alerts, of which messages tell.
_ALERTS_S = 5.0
_KILLED = [status for number in (signal.SIGTERM, signal.SIGKILL) for status in (-number, 128 + number)]
_SHELL_BASE = 128
_Command = subprocess.Popen[bytes] | Standby
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
# A terminal sends these signals to all processes of a command.
_OF_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGSTOP, signal.SIGCONT)


def begin_forked(_: object, descriptors: list[int]) -> None:
    """Makes an agent of a process that a spawner has forked."""
    serve(descriptors[0])


def begin_warm(request: dict[str, Any], descriptors: list[int]) -> None:
    """Makes an agent of a process that a warm process has forked, and before that a standby for its command.

    The request has the environment of the agent, since a warm process has that of the command, which is in the request,
    too: libraries may have changed it.
    """
    standby = None
    if is_clean():
        standby = fork_standby(descriptors)
        if standby is None:  # this process was the standby
            return
    changed = replace_variables(request["variables"])
    if standby is not None:
        standby.learn(request["imported_with"], changed)
    serve(descriptors[0], standby)


def serve(connection: int, standby: Standby | None = None) -> None:
    """Starts the attempt that the program at the other end of the connection wants, and stays until its end."""
    starter = socket.socket(fileno=connection)
    is_wanted, descriptors, _, _ = socket.recv_fds(starter, 1, _MOST_DESCRIPTORS)
    if is_wanted:
        lines = _lines(starter)
        order = from_line(next(lines), AgentOrder)
        _AttemptCommand(starter, order, descriptors, standby).run(from_line(line, AgentMessage) for line in lines)


class _AttemptCommand:
    """The command of one attempt, and all that belongs to it."""

    def __init__(
        self, starter: socket.socket, order: AgentOrder, descriptors: list[int], standby: Standby | None
    ) -> None:
        self._starter = starter
        self._order = order
        self._standby = standby
        self._folder = TrialFolder(Path(order.home), order.trial_id, order.node)
        self._lock = AliveLock.adopt(descriptors.pop(0))
        with contextlib.suppress(OSError):  # a full disk: the attempt can then not be killed by its trial's id
            self._lock.sign()
        self._ticket = Ticket.adopt(Path(order.ticket), descriptors.pop(0)) if order.ticket else None
        self._stdin = descriptors.pop(0) if order.has_stdin else None
        self._terminal = _Terminal(*order.screen) if order.screen else None
        self._screen = _outlet(descriptors.pop(0)) if order.screen else None
        self._showing = threading.Lock()
        log = os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        give_to_owner_of(Path(order.log).parent, Path(order.log), log)
        os.dup2(log, _STDERR)  # for a traceback, should we fail
        self._log = _outlet(log)
        self._reaping = threading.Lock()
        self._process: _Command | None = None
        self._is_killed = threading.Event()
        self._has_ended = threading.Event()
        self._is_late = threading.Event()
        self._pid = os.getpid()
        self._stall = ""
        """The words about the stall for which the command was killed; empty if it was not."""
        self._num_restarts = 0
        self._alerts = NewAlerts(self._folder)
        self._signs = Path(tempfile.mkdtemp(prefix="core-sdk-signs-"))

    def run(self, messages: Iterator[AgentMessage]) -> None:
        """Runs the command, until it has ended, its end is recorded, and no process writes its output any more."""
        # The trial counts as running, by its lock, until the guardian of a killed agent has killed all that is left. So
        # does its ticket: no slot is free before that.
        held = [self._lock.fileno(), *([self._ticket.fileno()] if self._ticket else [])]
        guardian = Guardian(None, self._order.mark, held=held)
        try:
            process, output = self._start(self._order.variables)
        except OSError as error:
            guardian.dismiss()
            self._tell(CommandNotStarted(error.strerror or str(error)))
            return
        self._tell(CommandStarted(process.pid))
        threading.Thread(target=self._obey, args=[messages], daemon=True).start()
        if self._order.ends_with is not None:
            threading.Thread(target=self._end_with, args=[self._order.ends_with], daemon=True).start()
        if self._order.time_limit_s is not None:
            threading.Thread(target=self._limit, args=[self._order.time_limit_s], daemon=True).start()
        threading.Thread(target=self._post_alerts, daemon=True).start()
        watch = None
        if self._order.stall_bounds is not None and sys.platform == "linux":
            watch = StallWatch(self._folder, self._signs, self._order.stall_bounds, self._tell_stall)
            watch.start()
        code, unkillable, copying = self._await(guardian, process, output)
        while not unkillable and (again := self._start_again(code)) is not None:
            code, unkillable, copying = self._await(guardian, *again)
        self._has_ended.set()
        if watch is not None:
            watch.close()
        shutil.rmtree(self._signs, ignore_errors=True)
        if self._is_late.is_set() and code in _KILLED:
            with contextlib.suppress(OSError):
                self._folder.append_change(
                    Settled(time=time.time(), state="CANCELED", reason=self._too_late(), attempt=self._order.attempt)
                )
        self._alerts.post()
        problems = end_attempt(self._folder, self._order.attempt, self._lock, code, self._stall)
        if self._ticket is not None:
            # Processes that cannot be killed keep the slots, by their traces.
            (self._ticket.leave if unkillable else self._ticket.release)()
        self._close_screen()
        self._tell(CommandEnded(code, tuple(problems)))
        guardian.dismiss()
        post_end(self._folder)
        revive_master(self._folder.home_root)  # it has to hear of this end
        copying.join()  # a process may still write that has given up its mark and its session

    def _await(self, guardian: Guardian, process: _Command, output: int) -> tuple[int, bool, threading.Thread]:
        """Waits until the command has ended, and ends what it has left behind.

        Returns its exit status, whether something could not be ended, and the thread that keeps the output.
        """
        if self._ticket is not None:
            self._ticket.note_traces(Traces.of(guardian.mark, process.pid))
        ranks = RankProcesses(guardian)
        ranks.add(0, process.pid)
        copying = threading.Thread(target=self._copy, args=[output])
        copying.start()
        # Until it is reaped, its pid cannot come to mean other processes.
        ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        if self._is_killed.is_set() or _was_killed(ended):
            # A killed command has had no time to end the processes that it had started.
            end_marked(guardian.mark, [process.pid])
        copying.join(_LAST_OUTPUT_S)
        self._name_left(describe_marked(guardian.mark))
        ranks.end(_END_S)
        unkillable = bool(end_left(guardian.mark, _END_S))
        ranks.release()
        with self._reaping:
            return process.wait(), unkillable, copying

    def _post_alerts(self) -> None:
        disks = FullDisks(self._folder)
        while not self._has_ended.wait(_ALERTS_S):
            self._alerts.post()
            disks.post()
            keep_pushing(self._folder)

    def _tell_stall(self, words: str) -> None:
        """Tells of ranks that stand still, and kills the command if that is wanted: it could not stop."""
        self._say(f"core-sdk: stalled: {words}\n")
        post_of_trial(self._folder, "stalled", str(time.time_ns()), words)
        if self._order.restarts_stalled:
            self._stall = f"stalled: {words}"
            self._send(signal.SIGKILL)

    def _start_again(self, code: int) -> tuple[_Command, int] | None:
        """Starts the command again after a stall, or if a guard lets the trial go back. Returns None if it does not.

        The trial is held all the while. If this process is killed, whoever resumes the trial lets it go back.
        """
        is_asked = self._is_killed.is_set() or self._is_late.is_set() or self._order.node or self._order.num_nodes > 1
        try:
            if is_asked or not self._lock.is_at(self._folder.supervised_path(self._order.attempt)):
                return None
            if self._stall and self._num_restarts >= self._order.num_restarts:
                return None
            if not self._stall and not goes_back(self._folder, code):
                return None
            self._num_restarts += bool(self._stall)
            ended = ExitRecord(time=time.time(), code=code, reason=self._stall)
            self._folder.write_exit(max(self._folder.attempts()), ended)
            self._stall = ""
            from core_sdk._home.attempts.restarts import begin_next  # few agents start a command twice

            path = begin_next(self._folder)
            for left in self._signs.iterdir():
                left.unlink()  # the next ranks are none that have ended, however long they take to begin
            if self._terminal is not None:
                self._terminal = self._terminal.another()
            return self._start({**self._order.variables, RUN_INFO_VARIABLE: str(path.absolute())})
        except (CoreSDKError, OSError) as error:
            self._say(f"core-sdk: the trial cannot be started again: {error}\n")
            return None

    def _start(self, variables: Mapping[str, str]) -> tuple[_Command, int]:
        """Starts the command, and returns its process and the descriptor of its output. Raises `OSError`."""
        order = self._order
        if self._terminal is None:
            source, sink = os.pipe()
        else:
            source, sink = self._terminal.controller, self._terminal.device
        variables = {**variables, SIGNS_VARIABLE: str(self._signs)}
        standby, self._standby = self._standby, None
        try:
            if standby is not None and standby.begin(order, variables, sink):
                self._process = standby
                return standby, source
            process = subprocess.Popen(
                order.argv,
                cwd=order.cwd,
                env=variables,
                stdin=self._stdin if self._stdin is not None else sink if self._terminal else subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
                preexec_fn=self._prepare,
            )
        finally:
            os.close(sink)
            if self._stdin is not None:
                os.close(self._stdin)
                self._stdin = None
        self._process = process
        return process, source

    def _prepare(self) -> None:
        """Prepares the command's process, in which it runs before the command is executed."""
        if self._terminal is not None:
            fcntl.ioctl(_STDOUT, termios.TIOCSCTTY, 0)  # the terminal of its session
        if sys.platform == "linux":
            # Somebody may kill our guardian with us. Then the kernel kills the command.
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != self._pid:
                os.kill(os.getpid(), signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._order.mask)

    def _copy(self, source: int) -> None:
        """Shows and keeps the command's output, until the last process that could write has closed it."""
        lines = PlainLines()
        while chunk := _read(source):
            with self._showing:
                if self._screen is not None:
                    self._screen.write(chunk)
            self._log.write(chunk if self._terminal is None else lines.feed(chunk))
        self._log.write(lines.finish())

    def _name_left(self, left: Sequence[str]) -> None:
        """Names the processes that are ended since the command has left them behind."""
        if left:
            self._say(f"core-sdk: the command has left processes behind, which are ended: {', '.join(left)}\n")

    def _say(self, words: str) -> None:
        """Adds words of our own to the output."""
        with self._showing:
            if self._screen is not None:
                self._screen.write(words.encode())
        self._log.write(words.encode())

    def _close_screen(self) -> None:
        """Closes the screen, since the starter waits for its end. Later output is not shown."""
        with self._showing:
            if self._screen is not None:
                self._screen.close()
                self._screen = None

    def _obey(self, messages: Iterator[AgentMessage]) -> None:
        """Does what the starter asks for, until it closes the socket or dies."""
        for message in messages:
            match message:
                case SendSignal(number):
                    if number == signal.SIGKILL:
                        self._is_killed.set()
                    self._send(number)
                case ResizeTerminal(num_rows, num_columns) if self._terminal is not None:
                    self._terminal.resize(num_rows, num_columns)
                case TypeInput(text) if self._terminal is not None:
                    self._terminal.type(text)

    def _end_with(self, pid: int) -> None:
        """Ends this process at once when process `pid` ends; the guardian then kills the command."""
        with contextlib.suppress(OSError):  # it has ended already
            select.select([os.pidfd_open(pid)], [], [])
        os._exit(1)

    def _too_late(self) -> str:
        return f"its time limit of {self._order.time_limit_s:g} s was over"

    def _limit(self, limit_s: float) -> None:
        """Asks the command to stop when its time is over, and kills it if it has not done so within a grace."""
        if self._has_ended.wait(limit_s):
            return
        self._is_late.set()
        with contextlib.suppress(OSError):  # a full disk: the signal tells it, too
            self._folder.request_stop(max(self._folder.attempts()), self._too_late())
        if self._has_ended.wait(_ASKED_S):  # a script that asks for stops knows why
            return
        self._send(signal.SIGTERM)
        if self._has_ended.wait(_LIMIT_GRACE_S):
            return
        self._is_killed.set()
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        with self._reaping:
            if self._process is not None:
                _send(self._process, number)

    def _tell(self, answer: AgentAnswer) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more
            self._starter.sendall(to_line(answer))


class _Terminal:
    """A pseudo-terminal: the command has one end, `device`, and this process the other, `controller`."""

    def __init__(self, num_rows: int, num_columns: int) -> None:
        self.controller, self.device = os.openpty()
        self.resize(num_rows, num_columns)
        attributes = termios.tcgetattr(self.device)
        # The user's own terminal does both: it shows what is typed, and begins each line at the left.
        attributes[1] &= ~termios.ONLCR
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(self.device, termios.TCSANOW, attributes)

    def another(self) -> _Terminal:
        """Returns another terminal of the same size, for a command that is started again."""
        size = termios.tcgetwinsize(self.controller)
        os.close(self.controller)
        return _Terminal(*size)

    def resize(self, num_rows: int, num_columns: int) -> None:
        """Changes the size, of which the kernel tells the command by SIGWINCH."""
        termios.tcsetwinsize(self.controller, (num_rows, num_columns))

    def type(self, text: bytes) -> None:
        """Sends input to the command, or drops it if the terminal is full, since signals must not wait for it."""
        if select.select([], [self.controller], [], 0)[1]:
            os.write(self.controller, text)


def _was_killed(ended: os.waitid_result | None) -> bool:
    """Returns whether SIGKILL has ended it, as far as it shows: a shell reports its command's end by its own status."""
    if ended is None:
        return False
    is_exit = ended.si_code == os.CLD_EXITED
    return ended.si_status == (_SHELL_BASE + signal.SIGKILL if is_exit else signal.SIGKILL)


def _outlet(descriptor: int) -> Outlet:
    """Returns an outlet that takes the descriptor over. It waits for no reader, so as not to hold up the command."""
    is_hurried = threading.Event()
    is_hurried.set()
    outlet = Outlet(descriptor, is_hurried, _PATIENCE_S)
    os.close(descriptor)
    return outlet


def _read(source: int) -> bytes:
    try:
        return os.read(source, _CHUNK_BYTES)
    except OSError:  # EIO: all processes have closed the terminal
        return b""


def _send(process: _Command, number: int) -> None:
    if process.returncode is None:
        send = os.killpg if number in _OF_TERMINAL else os.kill
        with contextlib.suppress(ProcessLookupError, PermissionError):
            send(process.pid, number)


def _lines(starter: socket.socket) -> Iterator[bytes]:
    """Yields the messages of the starter, until the connection ends."""
    received = b""
    with contextlib.suppress(OSError):
        while chunk := starter.recv(_CHUNK_BYTES):
            *lines, received = (received + chunk).split(b"\n")
            yield from lines


if __name__ == "__main__":
    serve(_STDIN)
