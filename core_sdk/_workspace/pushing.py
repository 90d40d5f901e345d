"""Sends the trials of a home to a workspace.

A pusher only reads the home. It may be killed at any time, and several may run at once: what has arrived is what the
workspace says.
"""

from __future__ import annotations

import contextlib
import logging
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import msgspec

from core_sdk._ground.files import NotRegularError, fingerprint, read_regular, reading
from core_sdk._ground.records import MANIFEST_NAME, CommandRecord, TrialRecord, decode_file, encode_file
from core_sdk._home.folders import Home, TrialFolder
from core_sdk._home.history import read_history
from core_sdk._home.storages import is_inside, storage_url
from core_sdk._workspace.actions.acting import Hands
from core_sdk._workspace.actions.signs import PusherSigns
from core_sdk._workspace.connection import WorkspaceConnection
from core_sdk._workspace.files import CHANGES, is_of_rank, kind_of
from core_sdk._workspace.wire import (
    MOST_PIECES,
    MOST_TRIALS,
    PIECE_BYTES,
    REQUEST_BYTES,
    VERSION,
    Allotted,
    AnnouncedExperiment,
    AnnouncedTrial,
    Announcement,
    AskedCheckpoint,
    Extent,
    PieceHead,
    TrialKey,
    piece_of,
)
from core_sdk.errors import CoreSDKError, TrialNotFoundError, WorkspaceUnreachableError

logger = logging.getLogger("core_sdk.tracking")

_COMMAND = "command.json"
_LINE_BYTES = 64 << 10

_State = tuple[int, int, int]
"""The inode, the size and the time of a file, which tell whether it was replaced."""


@dataclass
class Pushed:
    """What was sent, by the ids of trials in the home."""

    numbers: dict[int, int] = field(default_factory=dict)
    """The numbers of the trials in the workspace."""
    num_bytes: int = 0
    problems: list[str] = field(default_factory=list)
    """What the workspace does not take, each with the reason."""


class Pusher:
    """Sends trials of a home, as they are now, as often as it is asked to. Only one thread may use it.

    Its methods raise `WorkspaceError`, after which they can be called again.
    """

    def __init__(
        self,
        home: Home,
        connection: WorkspaceConnection,
        *,
        with_checkpoints: bool = False,
        hands: Hands | None = None,
    ) -> None:
        self._home = home
        self._connection = connection
        self._with_checkpoints = with_checkpoints
        self._trials: dict[int, _TrialPush] = {}
        self._signs = PusherSigns(home, hands)
        self.pushed = Pushed()

    def push(self, trial_ids: Iterable[int]) -> bool:
        """Sends what these trials have recorded up to now. Returns whether there was something to send."""
        trials = [self._trials.setdefault(each, _TrialPush(self._home, each)) for each in trial_ids]
        before = self.pushed.num_bytes
        try:
            is_more = True
            while is_more:
                self._announce([trial for trial in trials if trial.is_to_be_announced()])
                is_more = self._send([trial for trial in trials if trial.is_open])
                is_more = is_more or any(trial.needs_number for trial in trials)
                self._give_sign(trials)  # a trial may report faster than the line is, so that there is always more
            if self._with_checkpoints:
                for trial in trials:
                    self._push_checkpoints(trial)
        except BaseException:
            # Nobody knows what has arrived: the workspace is asked again.
            for trial in trials:
                trial.forget()
            raise
        return self.pushed.num_bytes > before

    def _give_sign(self, trials: Sequence[_TrialPush]) -> None:
        running = {trial.number: attempt for trial in trials if trial.is_open and (attempt := trial.running_attempt())}
        told = {number: attempt for number, attempt in running.items() if number is not None}
        # Another pusher may have said that they run.
        ended = [trial.number for trial in trials if trial.is_open and trial.number and trial.number not in told]
        self._signs.give(self._connection, told, ended)

    def use(self, connection: WorkspaceConnection) -> None:
        """Goes on with another connection, and closes the one before."""
        self._connection.close()
        self._connection = connection

    def forget(self, trial_id: int) -> None:
        """Forgets what is known of a trial of which nothing more is to be sent."""
        self._trials.pop(trial_id, None)

    def _announce(self, trials: Sequence[_TrialPush]) -> None:
        waiting = iter(trials)
        while some := list(islice(waiting, MOST_TRIALS)):
            told = [(trial, announced) for trial in some if (announced := self._told(trial)) is not None]
            ownership = self._home.ownership()
            answers = self._connection.announce(
                Announcement(VERSION, self._home.identity(), list(ownership.adopted), [each for _, each in told])
            )
            for (trial, _), allotted in zip(told, answers, strict=True):
                if problem := trial.take(allotted):
                    self._tell(problem)
                if not allotted.is_deleted:
                    self.pushed.numbers[trial.trial_id] = allotted.number

    def _told(self, trial: _TrialPush) -> AnnouncedTrial | None:
        try:
            return trial.announced()
        except TrialNotFoundError:
            trial.is_left = True  # it was deleted here
        except (CoreSDKError, OSError) as error:
            self._tell(f"trial {trial.trial_id} cannot be read: {error}")
            trial.is_left = True
        return None

    def _send(self, trials: Sequence[_TrialPush]) -> bool:
        """Sends one request. Returns whether there was something to send, so that there may be more."""
        pieces: list[tuple[_TrialPush, PieceHead, bytes]] = []
        size_bytes = 0
        for trial in trials:
            for head, content in trial.news():
                pieces.append((trial, head, content))
                size_bytes += len(content)
                if size_bytes >= REQUEST_BYTES or len(pieces) >= MOST_PIECES:
                    break
            if size_bytes >= REQUEST_BYTES or len(pieces) >= MOST_PIECES:
                break
        if not pieces:
            return False
        answers = self._connection.send((head, content) for _, head, content in pieces)
        for (trial, head, content), answer in zip(pieces, answers.answers, strict=False):
            self.pushed.num_bytes += len(content) if answer.outcome == "taken" else 0
            match answer.outcome:
                case "taken":
                    trial.taken(head, answer.size_bytes)
                case "differs" if is_of_rank(head.name):
                    trial.is_other()
                case "deleted":
                    trial.is_left = True
                    self._tell(answer.problem)
                case _:
                    trial.leave_out(head.name)
                    self._tell(answer.problem)
        if answers.problem:
            raise WorkspaceUnreachableError(self._connection.url, answers.problem)
        return True

    def _push_checkpoints(self, trial: _TrialPush) -> None:
        """Sends the checkpoints that lie in the home. Those in other storages have an address there."""
        number = trial.number
        if number is None or not trial.is_open:
            return
        for storage_id, path in trial.checkpoints():
            arrival = self._connection.checkpoint(AskedCheckpoint(number, storage_id))
            if not arrival.is_stored and not arrival.problem:
                with contextlib.suppress(FileNotFoundError):  # it has just been deleted here
                    self._send_checkpoint(number, storage_id, path, arrival.files)
                    arrival = self._connection.checkpoint(AskedCheckpoint(number, storage_id, is_complete=True))
            if arrival.problem:
                self._tell(f"checkpoint {storage_id}: {arrival.problem}")
            else:
                trial.stored.add(storage_id)

    def _send_checkpoint(self, number: int, storage_id: str, path: Path, arrived: dict[str, int]) -> None:
        for file in sorted(each for each in path.rglob("*") if each.is_file()):
            name, size_bytes = file.relative_to(path).as_posix(), file.stat().st_size
            offset = arrived.get(name, -1)
            while offset < size_bytes:
                content = _read(file, max(0, offset), PIECE_BYTES)
                # The manifest, which comes with the files, has the checksums of all of them.
                whole = Extent(size_bytes, 0)
                piece = piece_of(number, f"checkpoints/{storage_id}/{name}", max(0, offset), content, whole)
                answers = self._connection.send([piece])
                if answers.problem or not answers.answers or answers.answers[0].outcome != "taken":
                    problem = answers.problem or "; ".join(each.problem for each in answers.answers)
                    raise WorkspaceUnreachableError(self._connection.url, problem or "it has not answered")
                self.pushed.num_bytes += len(content)
                offset = answers.answers[0].size_bytes

    def _tell(self, problem: str) -> None:
        if problem not in self.pushed.problems:
            self.pushed.problems.append(problem)


class _TrialPush:
    """What is known of a trial on its way: its number, and how much of each file has arrived."""

    def __init__(self, home: Home, trial_id: int) -> None:
        self.trial_id = trial_id
        self.number: int | None = None
        self.is_left = False
        """Whether nothing more is sent of it."""
        self.stored: set[str] = set()
        """The checkpoints whose files are in the workspace."""
        self._home = home
        self._folder = home.folder(trial_id)
        self._record: TrialRecord | None = None
        self._experiment: AnnouncedExperiment | None = None
        self._instead_of: int | None = None
        self._is_of_copy = False
        self._grown: dict[str, Extent] = {}
        self._arrived: dict[str, Extent] = {}
        self._looked: dict[str, _State] = {}
        """The state in which a file that is replaced as a whole has arrived."""
        self._large: dict[str, tuple[_State, Extent]] = {}
        self._left_out: set[str] = set()

    @property
    def is_open(self) -> bool:
        """Whether pieces of it are sent."""
        return self.number is not None and not self.is_left and not self._is_of_copy

    @property
    def needs_number(self) -> bool:
        """Whether the workspace is to give it a number."""
        return self.number is None and not self.is_left

    def running_attempt(self) -> int | None:
        with contextlib.suppress(OSError):
            return self._folder.running_attempt()
        return None

    def is_to_be_announced(self) -> bool:
        """Returns whether the workspace is to be asked for its number, or told that its record has changed."""
        if self.is_left or self.needs_number:
            return self.needs_number
        if self._is_of_copy:
            return self._extents() != self._grown
        with contextlib.suppress(CoreSDKError, OSError):
            return self._folder.read_record() != self._record or self._read_experiment() != self._experiment
        return False

    def announced(self) -> AnnouncedTrial:
        """Returns what the workspace is told. Raises `CoreSDKError` or `OSError` if the trial cannot be read."""
        self._record = self._folder.read_record()
        self._experiment = self._read_experiment()
        self._grown = self._extents()
        relatives = {}
        for trial_id in {self._record.parent, self._record.started_by, self._record.try_id} - {None}:
            with contextlib.suppress(CoreSDKError, OSError):
                relatives[str(trial_id)] = TrialKey.of(self._home.folder(trial_id or 0).read_record())
        return AnnouncedTrial(self._record, self._experiment, self._grown, relatives, self._instead_of)

    def take(self, allotted: Allotted) -> str:
        """Takes what the workspace has answered. Returns what is to be told of it."""
        self.number, self._is_of_copy, self.is_left = allotted.number, allotted.is_of_copy, allotted.is_deleted
        self._arrived = dict(allotted.arrived)
        self._looked.clear()
        if allotted.is_deleted:
            return f"trial {self.trial_id} was trial {self.number} there, and was deleted there"
        if self._is_of_copy:
            return ""
        others = [
            *allotted.differing,
            *(name for name, each in self._arrived.items() if self._is_other_file(name, each)),
        ]
        if any(map(is_of_rank, others)):
            self.is_other()
            return ""
        if others:
            self._left_out.update(others)
            return (
                f"trial {self.number} there has another {' and another '.join(others)} than trial {self.trial_id} here"
            )
        if self._instead_of is not None:
            told, self._instead_of = self._instead_of, None
            return f"trial {self.trial_id} is trial {self.number} there: trial {told} there went on otherwise"
        return ""

    def forget(self) -> None:
        """Has the workspace asked again."""
        self.number = None
        self._is_of_copy = False

    def is_other(self) -> None:
        """Notes that the trial of this number is another continuation: it gets another number."""
        self._instead_of, self.number = self.number, None

    def leave_out(self, name: str) -> None:
        self._left_out.add(name)

    def taken(self, head: PieceHead, size_bytes: int) -> None:
        """Notes how much of a file is there. For one that is replaced, the offset of its next piece."""
        if head.whole is None:
            self._arrived[head.name] = Extent(size_bytes, 0)
        elif size_bytes >= head.whole.size_bytes:
            self._arrived[head.name] = head.whole
            self._arrived.pop(f"{head.name} ", None)
        else:
            self._arrived[f"{head.name} "] = Extent(size_bytes, head.whole.checksum)

    def news(self) -> Iterator[tuple[PieceHead, bytes]]:
        """Yields one piece of each file that has not arrived: media first, since reports name them."""
        for name, path in sorted(_files(self._folder), key=lambda each: (not each[0].startswith("media/"), each[0])):
            with contextlib.suppress(FileNotFoundError, NotRegularError):
                if self.number is not None and name not in self._left_out:
                    yield from self._piece(self.number, name, path)
        code = None if self._record is None else self._record.code
        if self.number is not None and code is not None and f"code/{code.sha256}.tar.gz" not in self._left_out:
            with contextlib.suppress(FileNotFoundError):
                archive = self._home.code_archive(code.sha256)
                yield from self._piece(self.number, f"code/{code.sha256}.tar.gz", archive)

    def checkpoints(self) -> list[tuple[str, Path]]:
        """Returns the checkpoints that lie in the home, and were not stored in the workspace yet."""
        found = []
        for checkpoint in read_history(self._folder).checkpoints:
            storage_id = checkpoint.record.storage_id
            url = storage_url(self._home, checkpoint.record.storage, storage_id)
            path = self._home.checkpoints / storage_id
            if storage_id not in self.stored and is_inside(self._home, url) and (path / MANIFEST_NAME).exists():
                found.append((storage_id, path))
        return found

    def _piece(self, number: int, name: str, path: Path) -> Iterator[tuple[PieceHead, bytes]]:
        kind, arrived = kind_of(name), self._arrived.get(name)
        if kind == "growing":
            offset = 0 if arrived is None else arrived.size_bytes
            if path.stat().st_size <= offset:
                return
            content = _whole_lines(name, _read(path, offset, PIECE_BYTES))
            if content:
                yield piece_of(number, name, offset, content)
            return
        if kind in ("media", "code") and arrived is not None:
            return
        if name not in (CHANGES, _COMMAND) and self._looked.get(name) == _state(path):
            return
        state, whole, read = self._whole(name, path)
        if whole == arrived or (name == CHANGES and not whole.size_bytes):
            self._looked[name] = state
            return
        begun = self._arrived.get(f"{name} ")
        offset = begun.size_bytes if begun is not None and begun.checksum == whole.checksum else 0
        yield piece_of(number, name, offset, read(offset), whole)

    def _whole(self, name: str, path: Path) -> tuple[_State, Extent, Callable[[int], bytes]]:
        """Returns the state of a file, what is sent of it, and a function that returns a piece of that."""
        state = _state(path)
        if state[1] <= PIECE_BYTES or name in (CHANGES, _COMMAND):
            content = read_regular(path)
            if name == CHANGES:
                content = content[: content.rfind(b"\n") + 1]
            content = _without_secrets(name, content)
            extent = Extent(len(content), zlib.crc32(content))
            return state, extent, lambda offset: content[offset : offset + PIECE_BYTES]
        if name not in self._large or self._large[name][0] != state:
            self._large[name] = state, _extent(path)
        return state, self._large[name][1], lambda offset: _read(path, offset, PIECE_BYTES)

    def _extents(self) -> dict[str, Extent]:
        """Returns what there is of the files that grow, up to their last whole line."""
        found = {}
        for name, path in _files(self._folder):
            if kind_of(name) == "growing":
                with contextlib.suppress(OSError):
                    size_bytes = _sent_size(name, path)
                    found[name] = Extent(size_bytes, fingerprint(path, size_bytes))
        return found

    def _is_other_file(self, name: str, arrived: Extent) -> bool:
        """Returns whether what has arrived of a file that grows is not the beginning of the one here.

        If there is less of it here, the workspace compares.
        """
        path = self._folder.path / name
        with contextlib.suppress(FileNotFoundError):
            if kind_of(name) == "growing" and path.stat().st_size >= arrived.size_bytes:
                return fingerprint(path, arrived.size_bytes) != arrived.checksum
        return False

    def _read_experiment(self) -> AnnouncedExperiment:
        record = self._home.experiment(self._folder.read_record().experiment_id).read()
        return AnnouncedExperiment(
            experiment_id=record.experiment_id,
            name=record.name,
            created=record.created,
            is_submitted=record.is_submitted,
            labels=record.labels,
            description=record.description,
            notes=record.notes,
            searcher_metric=record.searcher_metric,
            study=record.study,
        )


def _files(folder: TrialFolder) -> Iterator[tuple[str, Path]]:
    """Yields the trial's files that are sent, without its copy of the code."""
    paths: list[Iterable[Path]] = [folder.path.glob("*")]
    paths += [folder.path.glob(pattern) for pattern in ("tensorboard/**/*", "media/*", "profiles/*", "node*/*")]
    for path in (each for some in paths for each in some):
        name = path.relative_to(folder.path).as_posix()
        if kind_of(name) is not None and path.is_file() and not path.is_symlink():
            yield name, path


def _whole_lines(name: str, content: bytes) -> bytes:
    """Returns the content without an incomplete line of a journal, which may be cut off again if the disk is full."""
    if not name.endswith(".journal"):
        return content
    return content[: content.rfind(b"\n") + 1] or (content if len(content) == PIECE_BYTES else b"")


def _sent_size(name: str, path: Path) -> int:
    """Returns the size of a file without an incomplete last line of a journal."""
    size_bytes = path.stat().st_size
    if not name.endswith(".journal"):
        return size_bytes
    end = size_bytes
    while end > 0:
        begin = max(0, end - _LINE_BYTES)
        content = _read(path, begin, end - begin)
        if (found := content.rfind(b"\n")) >= 0:
            return begin + found + 1
        end = begin
    return 0


def _without_secrets(name: str, content: bytes) -> bytes:
    """Returns the content as others may read it: a command without the variables with which it was started."""
    if name != _COMMAND:
        return content
    try:
        return encode_file(msgspec.structs.replace(decode_file(content, CommandRecord), environment={}))
    except ValueError:  # damaged: readers name it
        return content


def _read(path: Path, offset: int, size_bytes: int) -> bytes:
    with reading(path) as file:
        file.seek(offset)
        return file.read(size_bytes)


def _extent(path: Path) -> Extent:
    size_bytes = checksum = 0
    with reading(path) as file:
        while content := file.read(PIECE_BYTES):
            size_bytes += len(content)
            checksum = zlib.crc32(content, checksum)
    return Extent(size_bytes, checksum)


def _state(path: Path) -> _State:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns
