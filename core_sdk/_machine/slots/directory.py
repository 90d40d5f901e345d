"""The directory in which all users of this machine post their tickets for slots."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import pwd
import re
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from core_sdk._ground.alive import AliveLock, is_alive
from core_sdk._ground.decoding import convert, json_decoder
from core_sdk._ground.environment import slot_directory
from core_sdk._ground.files import opened_regular, write_whole
from core_sdk._machine.slots.turns import PostedTicket, obstacles, slots_for
from core_sdk.errors import SlotError

if TYPE_CHECKING:
    from core_sdk._machine.processes import Traces

_SHARED_MODE = 0o1777
_PAUSE_S = 0.01
# Others hold the directory's lock for milliseconds. One that holds it for so long was stopped meanwhile.
_LONGEST_LOCK_S = 10.0
# A waiting process looks for its turn several times a second.
_ASLEEP_S = 30.0
# What cleans /tmp removes files that nobody has touched for days.
_TOUCH_S = 3600.0
# A ticket has its final size from the beginning, so that a disk that is full later takes no slot away.
_BLOCK_BYTES = 4096
# Room for the traces of the attempt's processes, which are noted later.
_TRACES_BYTES = 256
# A ticket that waits for thousands of slots is shorter. Everybody reads what anybody has put there.
_MOST_BYTES = 1 << 20
_NUMBER = re.compile(r"[0-9]{1,18}")


# Names of slots are shown to everybody.
_SlotName = Annotated[str, msgspec.Meta(pattern=r"\A[ -~]{1,200}\Z")]


class TicketRecord(msgspec.Struct, kw_only=True):
    """The content of a ticket's public file."""

    format: int = 1
    place: int
    num_wanted: Annotated[int, msgspec.Meta(ge=0)]
    usable: list[_SlotName]
    held: list[_SlotName] = []
    pid: int
    since: float
    traces: dict[str, str | int] | None = None
    """The `Traces` by which the processes are found that the attempt has left, when nobody holds the lock any more."""


class TicketTrial(msgspec.Struct, kw_only=True):
    """The content of a ticket's private file."""

    home: str
    trial_id: int | None = None


class SlotDirectory:
    """The directory of tickets at `path`, which is made if it is missing; by default the machine's."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = slot_directory() if path is None else path

    def read(self) -> list[PostedTicket]:
        """Returns the tickets of living processes by number; none without a directory. Raises like `Ticket.take`."""
        if not self.path.exists():
            return []
        with _naming(self), self.locked():
            return self.tickets()

    def tickets(self) -> list[PostedTicket]:
        """Returns the tickets of living processes by number. Call it in a block of `locked`.

        Raises `SlotError` if one cannot be read.
        """
        return [posted for path in self._paths() if (posted := self._read(path)) is not None]

    def _paths(self) -> list[Path]:
        return sorted(path for path in self.path.glob("*.ticket") if _NUMBER.fullmatch(path.stem))

    def _read(self, path: Path) -> PostedTicket | None:
        """Returns the ticket; None if its processes are gone."""
        left: Sequence[int] = ()
        try:
            if not is_alive(path) and not (left := _left_of(path)):
                return None
            content, status = _read_bounded(path)
            record = json_decoder(TicketRecord)(content)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise self._unknown(path, f"{path.name} cannot be read ({error})") from error
        trial = _read_trial(path)
        return PostedTicket(
            number=int(path.stem),
            place=record.place,
            num_wanted=record.num_wanted,
            usable=record.usable,
            held=record.held,
            user=_user(status.st_uid),
            pid=record.pid,
            since=min(max(record.since, 0.0), time.time()),
            is_asleep=not record.held and time.time() - status.st_mtime > _ASLEEP_S,
            home=None if trial is None else trial.home,
            trial_id=None if trial is None else trial.trial_id,
            left=left,
        )

    @contextlib.contextmanager
    def locked(self, patience_s: float = _LONGEST_LOCK_S) -> Iterator[None]:
        """Keeps all other processes from posting and changing tickets inside the block.

        Raises `BlockingIOError` if another process has the lock for longer than `patience_s`.
        """
        deadline = time.monotonic() + patience_s
        descriptor = self._open()
        try:
            while not _try_lock(descriptor, deadline):
                time.sleep(_PAUSE_S)
            yield
        finally:
            os.close(descriptor)

    def next_number(self) -> int:
        """Returns a number larger than those of all tickets of living processes, under which nobody has left a file.

        Removes what dead processes of this user have left.
        """
        number = 1
        for path in self._paths():
            if is_alive(path) or _left_of(path):
                number = max(number, int(path.stem) + 1)
                continue
            with contextlib.suppress(OSError):
                if path.stat().st_uid == os.geteuid():
                    _remove(path)
        while os.path.lexists(path := self.path_of(number)) or _is_of_another(path.with_suffix(".trial")):
            number += 1
        if not _NUMBER.fullmatch(str(number)):
            raise self._unknown(self.path_of(number - 1), "its ticket has the largest number that there is")
        return number

    def path_of(self, number: int) -> Path:
        return self.path / f"{number:06}.ticket"

    def _unknown(self, path: Path, problem: str) -> SlotError:
        owner = _owner_of(path)
        return SlotError(
            f"no slot can be taken in {self.path}: which slots {owner} has is unknown, since {problem}. A process has "
            f"it locked: {owner} can end that, or remove the file. Another directory would give the same slots twice."
        )

    def _open(self) -> int:
        """Opens the directory, and makes it first if needed.

        Raises `OSError`, and `SlotError` unless all users can post their tickets in it.
        """
        with contextlib.suppress(FileExistsError):
            self.path.mkdir(_SHARED_MODE)
            self.path.chmod(_SHARED_MODE)  # whatever the umask is
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            deadline = time.monotonic() + _PAUSE_S * 10
            # Another user may have made it just now, and not opened it for others yet.
            while not (status := os.fstat(descriptor)).st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                if time.monotonic() > deadline:
                    mode = stat.S_IMODE(status.st_mode)
                    raise unusable(
                        self.path,
                        f"only its owner, {_user(status.st_uid)}, can write to it (mode {mode:o}), so that others "
                        f"would be given the same slots. Its owner can open it by `chmod 1777 {self.path}`",
                    )
                time.sleep(_PAUSE_S)
            if not os.access(self.path, os.W_OK | os.X_OK):
                raise PermissionError("you may not write to it")
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


class Ticket:
    """A ticket of this process: it waits in line, and then holds slots, until `release`.

    Another process may `adopt` it. It is void when no process has its lock any more, and none of those lives that
    `note_traces` has said how to find.
    """

    def __init__(
        self,
        directory: SlotDirectory,
        home: Path,
        num_wanted: int,
        usable: Sequence[str],
        *,
        place: int | None = None,
        patience_s: float = _LONGEST_LOCK_S,
    ) -> None:
        """Posts the ticket, for an attempt of `home`, and takes its slots if it is its turn already.

        It comes last in the line, unless `place` is an earlier one. Raises the errors of `take`.
        """
        self._home = home
        self.directory = directory
        self.held: Sequence[str] = ()
        with _naming(directory), directory.locked(patience_s):
            self._post(place)
            try:
                self._take(num_wanted, usable)
            except BaseException:
                self.release()
                raise

    def _post(self, place: int | None) -> None:
        self.number = self.directory.next_number()
        self.path = self.directory.path_of(self.number)
        _write_trial(self.path, TicketTrial(home=str(self._home)))
        os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))
        self.path.chmod(0o644)  # whatever the umask is
        self._lock = AliveLock.alone(self.path)
        self.place = self.number if place is None else min(place, self.number)
        record = TicketRecord(place=self.place, num_wanted=0, usable=[], pid=os.getpid(), since=time.time())
        try:
            self._record = self._written(record)
        except OSError:  # an empty ticket would keep everybody from the slots
            self.release()
            raise

    @classmethod
    def adopt(cls, path: Path, descriptor: int) -> Ticket:
        """Returns the ticket of another process that has sent its descriptor, and keeps it fresh."""
        ticket = cls.__new__(cls)
        ticket.path, ticket._lock = path, AliveLock.adopt(descriptor)
        threading.Thread(target=ticket._keep_fresh, name="core-sdk-ticket", daemon=True).start()
        return ticket

    def take(self, num_wanted: int, usable: Sequence[str], patience_s: float = _LONGEST_LOCK_S) -> Sequence[str]:
        """Takes slots if it is the ticket's turn, and returns them; otherwise empty. Call it again and again.

        The place in the line, `place`, stays when what is wanted changes. Raises `SlotError`, and
        `BlockingIOError` if the directory is locked for longer than `patience_s`.
        """
        with _naming(self.directory), self.directory.locked(patience_s):
            if not self._lock.is_at(self.path):  # somebody has removed it
                self._post(self.place)
            self._take(num_wanted, usable)
        return self.held

    def _take(self, num_wanted: int, usable: Sequence[str]) -> None:
        record = msgspec.structs.replace(
            self._record, place=self.place, num_wanted=num_wanted, usable=list(usable), held=[]
        )
        os.utime(self.fileno())
        if record != self._record:
            self._record = self._written(record)
        self._seen = self.directory.tickets()
        if held := slots_for(self.number, self._seen):
            self._record = self._written(msgspec.structs.replace(record, held=list(held), since=time.time()))
            self.held = held

    def obstacles(self, home: Path | None = None) -> str:
        """Returns who had the slots, or came first, at the last `take`; empty if only trials of `home` did."""
        return obstacles(self.number, self._seen, home)

    def name_trial(self, trial_id: int) -> None:
        """Tells the owner, and nobody else, which trial has the slots. A full disk is no obstacle."""
        with contextlib.suppress(OSError):
            _write_trial(self.path, TicketTrial(home=str(self._home), trial_id=trial_id))

    def note_traces(self, traces: Traces) -> None:
        """Says in an adopted ticket how the attempt's processes are found after the death of all who have its lock."""
        # A directory that cannot be locked is no obstacle: the lock of the ticket is enough while its holders live.
        with contextlib.suppress(OSError, SlotError), SlotDirectory(self.path.parent).locked():
            record = json_decoder(TicketRecord)(os.pread(self.fileno(), _MOST_BYTES, 0))
            self._written(msgspec.structs.replace(record, traces=msgspec.structs.asdict(traces)))

    def fileno(self) -> int:
        return self._lock.fileno()

    def leave(self) -> None:
        """Leaves the ticket to the processes that have adopted it."""
        self._lock.leave()

    def release(self) -> None:
        """Gives the slots, or the place in the line, back. Does nothing the second time, and after `leave`."""
        if self.fileno() >= 0:
            with contextlib.suppress(OSError):
                if self._lock.is_at(self.path):
                    _remove(self.path)
            self._lock.release()

    def _written(self, record: TicketRecord) -> TicketRecord:
        content = msgspec.json.encode(record)
        most = len(content) + _TRACES_BYTES + sum(len(name) + len('"",') for name in record.usable)
        os.pwrite(self.fileno(), content.ljust(-(-most // _BLOCK_BYTES) * _BLOCK_BYTES), 0)
        return record

    def _keep_fresh(self) -> None:
        """Touches the file now and then, so that what cleans /tmp does not take it for abandoned."""
        while self.fileno() >= 0:
            with contextlib.suppress(OSError):
                os.utime(self.fileno())
            time.sleep(_TOUCH_S)


@contextlib.contextmanager
def _naming(directory: SlotDirectory) -> Iterator[None]:
    """Names the directory in errors of the system, but for a lock that others have."""
    try:
        yield
    except BlockingIOError:
        raise
    except OSError as error:
        raise unusable(directory.path, error.strerror or str(error)) from error


def unusable(path: Path, problem: str) -> SlotError:
    return SlotError(
        f"no slot can be taken in {path}: {problem}. The variable CORE_SDK_SLOTS names another directory; it must be "
        "the same for all users of this machine."
    )


def _try_lock(descriptor: int, deadline: float) -> bool:
    """Locks an open file if nobody else has it locked. Raises `BlockingIOError` if they have after the deadline."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if time.monotonic() > deadline:
            raise
        return False
    return True


def _remove(path: Path) -> None:
    path.with_suffix(".trial").unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def _write_trial(ticket: Path, trial: TicketTrial) -> None:
    path = ticket.with_suffix(".trial")
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        write_whole(descriptor, msgspec.json.encode(trial))
    finally:
        os.close(descriptor)


def _left_of(ticket: Path) -> list[int]:
    """Returns the pids of processes of the attempt that live though nobody has the ticket's lock any more."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        traces = json_decoder(TicketRecord)(_read_bounded(ticket)[0]).traces
        if traces is not None:
            from core_sdk._machine.processes import Traces  # slow to import, and seldom needed

            return convert(traces, Traces).living()
    return []


def _read_trial(ticket: Path) -> TicketTrial | None:
    with contextlib.suppress(OSError, ValueError, RecursionError):  # another user's, above all
        return json_decoder(TicketTrial)(_read_bounded(ticket.with_suffix(".trial"))[0])
    return None


def _read_bounded(path: Path) -> tuple[bytes, os.stat_result]:
    """Returns the content of a regular file, and its status. Raises `OSError`, or `ValueError` if it is too long."""
    with opened_regular(path) as descriptor:
        status = os.fstat(descriptor)
        if status.st_size > _MOST_BYTES:
            raise ValueError(f"it has {status.st_size:,} bytes")
        return os.pread(descriptor, _MOST_BYTES, 0), status


def _is_of_another(path: Path) -> bool:
    try:
        return path.lstat().st_uid != os.geteuid()
    except FileNotFoundError:
        return False


def _owner_of(path: Path) -> str:
    try:
        return _user(path.lstat().st_uid)
    except OSError:
        return "nobody"


@functools.cache  # a directory service may answer slowly, and masters look at tickets all the time
def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
