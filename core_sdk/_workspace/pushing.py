"""Sends the trials of a home to a workspace.

A pusher only reads the home. It may be killed at any time, and several may run at once: what has arrived is what the
workspace says.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import msgspec

from core_sdk._ground.files import NotRegularError, fingerprint
from core_sdk._ground.records import MANIFEST_NAME, CommandRecord, TrialRecord, decode_file, encode_file
from core_sdk._home.folders import Home, TrialFolder
from core_sdk._home.history import read_history
from core_sdk._home.storages import is_inside, storage_url
from core_sdk._workspace.actions.acting import Hands
from core_sdk._workspace.actions.signs import PusherSigns
from core_sdk._workspace.connection import WorkspaceConnection
from core_sdk._workspace.files import COMMAND, experiment_file, is_of_rank, kind_of
from core_sdk._workspace.searches import SearchPush
from core_sdk._workspace.sending import SentFiles, read_part, sent_size
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
        self._searches: dict[int, SearchPush] = {}
        """The searches on their way, by the ids of experiments."""
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
                if trial.is_open and (experiment_id := trial.submitted_as()) is not None:
                    search = self._searches.setdefault(experiment_id, SearchPush(self._home, experiment_id))
                    if problem := search.take(allotted.number, allotted.arrived):
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
        pieces: list[tuple[_TrialPush | SearchPush, PieceHead, bytes]] = []
        size_bytes = 0
        experiments = {trial.submitted_as(): None for trial in trials}
        searches = [self._searches[each] for each in experiments if each is not None and each in self._searches]
        sources: list[_TrialPush | SearchPush] = [*trials, *searches]
        for source in sources:
            for head, content in source.news():
                pieces.append((source, head, content))
                size_bytes += len(content)
                if size_bytes >= REQUEST_BYTES or len(pieces) >= MOST_PIECES:
                    break
            if size_bytes >= REQUEST_BYTES or len(pieces) >= MOST_PIECES:
                break
        if not pieces:
            return False
        answers = self._connection.send((head, content) for _, head, content in pieces)
        for (source, head, content), answer in zip(pieces, answers.answers, strict=False):
            self.pushed.num_bytes += len(content) if answer.outcome == "taken" else 0
            match answer.outcome:
                case "taken":
                    source.taken(head, answer.size_bytes)
                case "differs" if is_of_rank(head.name) and isinstance(source, _TrialPush):
                    source.is_other()
                case "deleted":
                    source.is_left = True
                    self._tell(answer.problem)
                case _:
                    source.leave_out(head.name)
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
                content = read_part(file, max(0, offset), PIECE_BYTES)
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
        self._files = SentFiles({COMMAND: _without_variables})

    @property
    def is_open(self) -> bool:
        """Whether pieces of it are sent."""
        return self.number is not None and not self.is_left and not self._is_of_copy

    @property
    def needs_number(self) -> bool:
        """Whether the workspace is to give it a number."""
        return self.number is None and not self.is_left

    def submitted_as(self) -> int | None:
        """Returns the submitted experiment of the trial, as it was announced; None for one of a script."""
        found = self._experiment
        return found.experiment_id if found is not None and found.is_submitted else None

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
        self._files.take({name: each for name, each in allotted.arrived.items() if not experiment_file(name)})
        if allotted.is_deleted:
            return f"trial {self.trial_id} was trial {self.number} there, and was deleted there"
        if self._is_of_copy:
            return ""
        others = [
            *allotted.differing,
            *(name for name in self._files.arrived if self._is_other_file(name)),
        ]
        if any(map(is_of_rank, others)):
            self.is_other()
            return ""
        if others:
            self._files.left_out.update(others)
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
        self._files.left_out.add(name)

    def taken(self, head: PieceHead, size_bytes: int) -> None:
        self._files.taken(head, size_bytes)

    def news(self) -> Iterator[tuple[PieceHead, bytes]]:
        """Yields one piece of each file that has not arrived: media first, since reports name them."""
        for name, path in sorted(_files(self._folder), key=lambda each: (not each[0].startswith("media/"), each[0])):
            with contextlib.suppress(FileNotFoundError, NotRegularError):
                if self.number is not None:
                    yield from self._files.piece(self.number, name, path)
        code = None if self._record is None else self._record.code
        if self.number is not None and code is not None:
            with contextlib.suppress(FileNotFoundError):
                archive = self._home.code_archive(code.sha256)
                yield from self._files.piece(self.number, f"code/{code.sha256}.tar.gz", archive)

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

    def _extents(self) -> dict[str, Extent]:
        """Returns what there is of the files that grow, up to their last whole line."""
        found = {}
        for name, path in _files(self._folder):
            if kind_of(name) == "growing":
                with contextlib.suppress(OSError):
                    size_bytes = sent_size(name, path)
                    found[name] = Extent(size_bytes, fingerprint(path, size_bytes))
        return found

    def _is_other_file(self, name: str) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return self._files.is_other(name, self._folder.path / name)
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


def _without_variables(content: bytes) -> bytes:
    """Returns a command without the variables with which it was started."""
    try:
        return encode_file(msgspec.structs.replace(decode_file(content, CommandRecord), environment={}))
    except ValueError:  # damaged: readers name it
        return content
