"""Brings the records of one attempt home from the spool of a node, and brings to the node what the attempt needs."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

import msgspec

from core_sdk._ground.files import write_atomically
from core_sdk._ground.ownership import make_directory
from core_sdk._ground.records import (
    CheckpointDeleted,
    CheckpointStored,
    Record,
    Report,
    encode_file,
    from_json,
    media_in,
)
from core_sdk._home.attempts.continuation import find_checkpoint
from core_sdk._home.attempts.ending import read_end
from core_sdk._home.attempts.provisional import settle_unnamed
from core_sdk._home.deletion.collection import Request, collect
from core_sdk._home.folders import Home, TrialFolder
from core_sdk._home.journal import decode_line
from core_sdk._home.media import is_content_of
from core_sdk._home.next_attempt import claimed_next_attempt
from core_sdk._home.spool import node
from core_sdk._home.spool.pieces import Piece, in_pieces, is_journal
from core_sdk._home.spool.receiver import Receiver
from core_sdk._home.storage import DirectoryStorage
from core_sdk._home.storages import storage_url
from core_sdk.errors import CheckpointDamagedError, CheckpointNotFoundError, CoreSDKError, TrialRunningError

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("core_sdk.tracking")

# How long a node waits for news. A request to stop may take as long to reach the node.
_NEWS_S = 0.25
# The pause after the home's disk could not be written to.
_FULL_DISK_S = 1.0
# How long to wait for another collector; what is not deleted now is deleted the next time.
_COLLECTOR_S = 10.0


class NodeCall(Protocol):
    """Runs an importable function on a node, in a process that outlives the attempt. Raises `NodeLostError`."""

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...


class Shipment:
    """Brings the records of an attempt from the spool of its node into the home.

    Only one thread may use it, except for `give_up`. Methods that call the node raise `NodeLostError`.
    """

    problem: str = ""
    """The reason for which the last records could not be brought home; empty if they were."""

    def __init__(self, call: NodeCall, folder: TrialFolder, attempt: int, *, is_first: bool = True) -> None:
        """Opens the spool that the node has for the home of `folder`.

        From other nodes than the attempt's first, only what ranks and writers tell is brought home.
        """
        self._call = call
        self._folder = folder
        self._attempt = attempt
        self._is_first = is_first
        self._home = Home(folder.home_root.absolute())
        self._storage = DirectoryStorage(self._home.checkpoints)
        self._is_given_up = threading.Event()
        self.root = call(node.open_spool, self._home.identity(), self._home.owner())
        """The path of the spool on the node."""

    def fit_out(self, others: Iterable[Path] = ()) -> None:
        """Puts into the spool what `init()` and the script need from the home, and the files `others` of the home.

        Before that, brings home what attempts that no longer run have left in the spool.
        """
        self._bring_what_was_left()
        # The experiment is chosen in the home, which has all experiments.
        settle_unnamed(self._folder)
        self._put_record()
        record = self._folder.read_record()
        paths = [self._folder.journal_path(attempt) for attempt in range(1, self._attempt)]
        paths += [self._folder.changes_path, self._folder.operations_path, self._folder.run_info_path(self._attempt)]
        for path in paths:
            if path.exists():
                self._put(path, self._name(path))
        for attempt, source in self._folder.other_journals():
            path = self._folder.journal_path(attempt, source)
            if isinstance(source, str) and not self._call(node.exists, self.root, self._name(path)):
                self._put(path, self._name(path))  # the writer may go on there
        info = self._folder.read_run_info(self._attempt)
        if info is not None and info.latest_checkpoint is not None:
            self._put_checkpoint(info.latest_checkpoint)
        for path in (self._home.experiment(record.experiment_id).record_path, *others):
            self._put_whole(path, self._name(path))

    def follow(self, is_running: Callable[[], bool]) -> bool:
        """Brings the attempt's records home until it has ended. Returns whether all have arrived.

        Meanwhile, changes in the home are sent to the node. If the home's disk cannot be written to, it tries again.
        """
        receiver = Receiver(self._home.root, self._folder.trial_id, self._attempt if self._is_first else None)
        receiver.knows(*self._record())
        told = self._call(node.files_below, self.root, self._name(self._folder.path))
        while not self._is_given_up.is_set():
            # Asked before the records are read, so that all of them are read once the attempt has ended.
            was_running = is_running()
            try:
                self._tell(told)
                num_pieces = self._bring(receiver, _NEWS_S if was_running else 0)
            except OSError as error:
                if str(error) != self.problem:
                    logger.error("records cannot be brought home, and are tried again: %s", error)
                self.problem = str(error)
                self._is_given_up.wait(_FULL_DISK_S)
                continue
            self.problem = ""
            if not was_running and not num_pieces:
                return True
        return False

    def give_up(self) -> None:
        """Lets `follow` return soon. Two shipments at once would bring records twice."""
        self._is_given_up.set()

    def is_running(self) -> bool:
        """Returns whether the attempt may still record something."""
        return self._call(node.is_running, self.root, self._folder.trial_id, self._attempt)

    def finish(self) -> None:
        """Deletes checkpoints as at the end of any training, and removes the trial from the spool.

        Must be called after all records have arrived.
        """
        if read_end(self._folder, None).outcome in ("completed", "exited"):
            try:
                self._collect()
            except (CoreSDKError, OSError) as error:
                logger.warning("checkpoints of trial %d were not collected: %s", self._folder.trial_id, error)
        self.forget()

    def forget(self) -> None:
        """Removes the trial, whose records have all arrived, from the spool."""
        self._call(node.forget, self.root, self._folder.trial_id)

    def _tell(self, told: dict[str, int]) -> None:
        """Sends the node what the script reads from files: requests to stop, its search's wishes, and other changes.

        `told` has the sizes of the node's files by their names in the trial's folder, and is updated.
        """
        for path in self._folder.path.glob("*.stop"):
            if path.name not in told:
                self._call(node.put, self.root, Piece(self._name(path), 0, path.read_bytes(), is_whole=True))
                told[path.name] = 0
        for path in (self._folder.changes_path, self._folder.operations_path):
            size, known = path.stat().st_size if path.exists() else 0, told.get(path.name, 0)
            if size > known:
                content = path.read_bytes()[known:]
                self._call(node.put, self.root, Piece(self._name(path), known, content))
                told[path.name] = known + len(content)
                for record in _records(content):
                    if isinstance(record, CheckpointDeleted):
                        self._call(node.remove_checkpoint, self.root, record.storage_id)

    def _bring(self, receiver: Receiver, wait_s: float) -> int:
        """Brings the new pieces, and returns their number. Raises `OSError` if they cannot be read or written."""
        trial_id, attempt = receiver.trial_id, receiver.attempt
        pieces = self._call(node.read_news, self.root, trial_id, attempt, receiver.known(), wait_s)
        for piece in pieces:
            if self._is_given_up.is_set():
                break
            records = [] if not is_journal(piece.name) else _records(piece.content)
            for record in records:
                if isinstance(record, CheckpointStored) and self._is_at_home(record):
                    self._bring_checkpoint(record.storage_id)
                elif isinstance(record, Report) and record.json_metrics is not None:
                    with contextlib.suppress(ValueError):  # a value that no reader can use, which may come as it is
                        self._bring_media(trial_id, record)
            receiver.receive(piece)
            for record in records:
                if isinstance(record, CheckpointDeleted):
                    with contextlib.suppress(CheckpointNotFoundError):
                        self._storage.delete(record.storage_id)
        return len(pieces)

    def _collect(self) -> None:
        """Collects checkpoints by the policy that the script has recorded on the node."""
        experiment = self._home.experiment(self._folder.read_record().experiment_id)
        policy, metric = self._call(node.read_policy, self.root, experiment.experiment_id)
        with experiment.edit() as record:
            record.retention, record.searcher_metric = policy, metric or record.searcher_metric
        request = Request(experiment_id=experiment.experiment_id, ended_trial=self._folder.trial_id)
        for problem in collect(self._home, request, wait_s=_COLLECTOR_S).problems:
            logger.warning("checkpoints were not collected in %s", problem)

    def _bring_checkpoint(self, storage_id: str) -> None:
        """Brings a checkpoint home, before the record that names it. One that was just deleted is left out."""
        if (self._home.checkpoints / storage_id).exists():
            return
        source = f"checkpoints/{storage_id}"
        try:
            with self._storage.receive(storage_id) as directory:
                for name, size in self._call(node.files_below, self.root, source).items():
                    path = directory / name
                    if name.endswith("/"):
                        path.mkdir(parents=True, exist_ok=True)
                    else:
                        self._fetch(f"{source}/{name}", size, path)
        except (FileNotFoundError, CheckpointNotFoundError):
            logger.info("checkpoint %s was deleted before it could be brought home", storage_id)
        except CheckpointDamagedError as error:
            logger.error("%s", error)

    def _bring_media(self, trial_id: int, report: Report) -> None:
        """Brings the files home that a report names, before the report."""
        directory = self._home.folder(trial_id).media_path
        for _, file in media_in(from_json(report.json_metrics), ""):
            path = directory / file.name
            if file.problem or path.exists():
                continue
            content = bytearray()
            with contextlib.suppress(FileNotFoundError):  # the size tells
                while len(content) < file.size_bytes:
                    piece = self._call(node.read_file, self.root, self._name(path), len(content))
                    if not piece:
                        break
                    content += piece
            if is_content_of(file.name, content):
                make_directory(directory, exist_ok=True)
                write_atomically(path, bytes(content))
            else:
                logger.error("%s of trial %d is missing or damaged on its node", file.name, trial_id)

    def _bring_what_was_left(self) -> None:
        """Brings home what attempts that no longer run, since their program or node was lost, left in the spool."""
        for trial_id in self._call(node.trials_left, self.root):
            folder = self._home.folder(trial_id)
            if not folder.exists() or trial_id == self._folder.trial_id:
                claim: AbstractContextManager[object] = contextlib.nullcontext()
            else:
                claim = claimed_next_attempt(folder, "bring what is left of")
            receiver = Receiver(self._home.root, trial_id)
            try:
                while folder.exists() and self._bring(receiver, 0):
                    pass
                with claim:
                    self._call(node.forget, self.root, trial_id)
            except TrialRunningError:
                continue  # another attempt on this node brings it
            except OSError as error:
                logger.error("what was left of trial %d in %s stays there: %s", trial_id, self.root, error)

    def _is_at_home(self, stored: CheckpointStored) -> bool:
        return storage_url(self._home, stored.storage, stored.storage_id) == self._storage.url

    def _put_checkpoint(self, storage_id: str) -> None:
        """Puts a checkpoint that lies in the home into the spool. The node can reach other storages itself."""
        stored = find_checkpoint(self._home, self._folder, storage_id)
        if stored is not None and self._is_at_home(stored):
            with self._storage.open(storage_id) as directory:
                self._put_whole(directory, f"checkpoints/{storage_id}")

    def _put_whole(self, source: Path, target: str) -> None:
        """Puts a file or directory that other trials may use, too, into the spool, unless it is there already.

        It gets its name once it is complete.
        """
        if not source.exists() or self._call(node.exists, self.root, target):
            return
        directory, _, name = target.rpartition("/")
        arriving = f"{directory}/.arriving-{self._folder.trial_id}-{name}"
        for path in [source, *sorted(source.rglob("*"))]:
            each = f"{arriving}/{path.relative_to(source).as_posix()}".removesuffix("/.")
            if path.is_dir():
                self._call(node.make_directory, self.root, each)
            else:
                self._put(path, each)
        self._call(node.rename, self.root, arriving, target)

    def _put(self, path: Path, name: str) -> None:
        with path.open("rb") as file:
            for piece in in_pieces(name, file):
                self._call(node.put, self.root, piece)

    def _fetch(self, name: str, size: int, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            while file.tell() < size:
                content = self._call(node.read_file, self.root, name, file.tell())
                if not content:
                    raise FileNotFoundError(name)
                file.write(content)

    def _put_record(self) -> None:
        name, content = self._record()
        self._call(node.put, self.root, Piece(name, 0, content, is_whole=True))

    def _record(self) -> tuple[str, bytes]:
        """Returns the name and the content of the trial's record for the node, where it makes no experiment."""
        record = msgspec.structs.replace(self._folder.read_record(), is_named=True)
        return f"runs/{self._folder.trial_id}/trial.json", encode_file(record)

    def _name(self, path: Path) -> str:
        return path.absolute().relative_to(self._home.root).as_posix()


def _records(content: bytes) -> list[Record]:
    """Returns the records in these lines. Bad lines are skipped here, and reported by readers of the journal."""
    found = []
    for line in content.split(b"\n"):
        with contextlib.suppress(ValueError):
            found.append(decode_line(line))
    return found
