"""Brings records from nodes that do not see the home of the program.

    with Shipping(workers, folder, attempt) as shipping:
        workers.run(train, home, shipping.spools)

In a worker `core_sdk.environment.use_home(home, spools.get(number of its node))` says where its records are kept.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

import msgspec

from core_sdk.errors import CheckpointDamagedError, CheckpointNotFoundError, NodeLostError
from core_sdk.journal import decode_line
from core_sdk.records import CheckpointDeleted, CheckpointStored, Record, encode_file
from core_sdk.storage import DirectoryStorage
from core_sdk.tracking.attempts.continuation import find_checkpoint
from core_sdk.tracking.attempts.provisional import settle_unnamed
from core_sdk.tracking.home import Home, TrialFolder
from core_sdk.tracking.spool import node
from core_sdk.tracking.spool.pieces import Piece, in_pieces, is_journal
from core_sdk.tracking.spool.receiver import Receiver
from core_sdk.workers._group import WorkerGroup

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("core_sdk.workers")

# How long a node waits for news before it says that there are none: so long may a wish to stop take to come there.
_NEWS_S = 0.25
# How long a disk at home that takes nothing is left alone.
_FULL_DISK_S = 1.0
# How long the end waits for rank 0 to leave its script, and then for the last records.
_LEAVING_S = 5.0
_LAST_RECORDS_S = 60.0


class Shipping:
    """While it is open, what the ranks of one attempt record on other nodes comes home.

    Its end waits for the last records, also of a worker that was killed, and says in the log if some are missing. These
    stay on their node, and come home when workers of this home are there again.
    """

    def __init__(self, group: WorkerGroup, folder: TrialFolder, attempt: int) -> None:
        self.spools: dict[int, Path] = {}
        """By number of the node: where the ranks of a node that does not see the home keep their records."""
        self._group = group
        self._folder = folder
        self._attempt = attempt
        self._home = Home(folder.home_root.absolute())
        self._storage = DirectoryStorage(self._home.checkpoints)
        self._others: list[_Node] = []
        """The nodes with a spool but rank 0's, which record nothing."""
        self._resources = contextlib.ExitStack()
        self._is_closing = threading.Event()
        self._is_over = threading.Event()
        self._is_given_up = threading.Event()
        self._problem = ""
        self._thread = threading.Thread(target=self._run, name="core-sdk-shipping", daemon=True)

    def __enter__(self) -> Self:
        """Fits out the nodes that do not see the home. Raises `NodeLostError`."""
        identity = self._home.identity()
        for place in self._group.places:
            if place.local_rank == 0:
                there = _Node(self._group, place.rank)
                if not there.call(node.sees_home, self._home.root, identity):
                    there.root = there.call(node.open_spool, identity)
                    self._bring_what_was_left(there)
                    self._fit_out(there)
                    self.spools[place.cross_rank] = there.root
                    if place.rank == 0:
                        self._chief = there
                    else:
                        self._others.append(there)
        if 0 in self.spools:
            self._resources.enter_context(self._group.hold())
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for there in self._others:
            with contextlib.suppress(NodeLostError):
                there.call(node.forget, there.root, self._folder.trial_id)
        if 0 not in self.spools:
            return
        with self._resources:
            self._is_closing.set()
            self._thread.join(_LEAVING_S)
            self._is_over.set()
            self._thread.join(_LAST_RECORDS_S)
            if self._thread.is_alive():
                # The next attempt may bring what is left, and two at once would double it.
                self._is_given_up.set()
                self._problem = f"they have not come within {_LAST_RECORDS_S:g} s"
            if self._problem:
                self._say_what_is_missing()

    def _run(self) -> None:
        try:
            self._bring_all(Receiver(self._home.root, self._folder.trial_id, self._attempt))
        except NodeLostError as error:
            self._problem = str(error)
        except Exception as error:  # in a thread nobody would hear of it: `__exit__` says what is missing
            logger.exception("records of trial %d cannot be brought home", self._folder.trial_id)
            self._problem = f"{error}."

    def _bring_all(self, receiver: Receiver) -> None:
        receiver.knows(*self._record())
        told: set[Path] = set()
        while not self._is_given_up.is_set():
            # Before what it has written is read: then all is read once it has ended.
            is_running = not self._is_closing.is_set() or self._is_running()
            self._tell(told)
            try:
                num_pieces = self._bring(self._chief, receiver, _NEWS_S if is_running else 0)
            except OSError as error:
                if str(error) != self._problem:
                    logger.error("records cannot be brought home, and are tried again: %s", error)
                self._problem = str(error)
                self._is_given_up.wait(_FULL_DISK_S)
                continue
            self._problem = ""
            if not is_running and not num_pieces:
                self._chief.call(node.forget, self._chief.root, self._folder.trial_id)
                return
            if self._is_over.is_set() and not num_pieces:
                self._problem = "the script of rank 0 goes on."
                return

    def _is_running(self) -> bool:
        return self._chief.call(node.is_running, self._chief.root, self._folder.trial_id, self._attempt)

    def _tell(self, told: set[Path]) -> None:
        """A wish to stop the attempt is a file, which the chief looks for."""
        path = self._folder.stop_path(self._attempt)
        if path not in told and path.exists():
            told.add(path)
            self._chief.put(self._name(path), path.read_bytes(), is_whole=True)

    def _bring(self, there: _Node, receiver: Receiver, wait_s: float) -> int:
        """Returns how many pieces there were. Raises `OSError` if they cannot be read or written."""
        pieces = there.call(node.read_news, there.root, receiver.trial_id, receiver.attempt, receiver.known(), wait_s)
        for piece in pieces:
            if self._is_given_up.is_set():
                break
            records = [] if not is_journal(piece.name) else _records(piece.content)
            for record in records:
                if isinstance(record, CheckpointStored) and record.storage == self._storage.url:
                    self._bring_checkpoint(there, record.storage_id)
            receiver.receive(piece)
            for record in records:
                if isinstance(record, CheckpointDeleted):
                    with contextlib.suppress(CheckpointNotFoundError):
                        self._storage.delete(record.storage_id)
        return len(pieces)

    def _bring_checkpoint(self, there: _Node, storage_id: str) -> None:
        """Before the record that names it. One that was deleted meanwhile is left out, as its record will be."""
        if (self._home.checkpoints / storage_id).exists():
            return
        source = f"checkpoints/{storage_id}"
        try:
            with self._storage.receive(storage_id) as directory:
                for name, size in there.call(node.files_below, there.root, source).items():
                    path = directory / name
                    if name.endswith("/"):
                        path.mkdir(parents=True, exist_ok=True)
                    else:
                        there.fetch(f"{source}/{name}", size, path)
        except (FileNotFoundError, CheckpointNotFoundError):
            logger.info("checkpoint %s was deleted before it could be brought home", storage_id)
        except CheckpointDamagedError as error:
            logger.error("%s", error)

    def _bring_what_was_left(self, there: _Node) -> None:
        """By attempts whose program or node was lost, and which run no more."""
        for trial_id in there.call(node.trials_left, there.root):
            folder = self._home.folder(trial_id)
            if folder.exists() and trial_id != self._folder.trial_id and folder.running_attempt() is not None:
                continue
            receiver = Receiver(self._home.root, trial_id)
            try:
                while folder.exists() and self._bring(there, receiver, 0):
                    pass
            except OSError as error:
                logger.error("what was left of trial %d in %s stays there: %s", trial_id, there.root, error)
            else:
                there.call(node.forget, there.root, trial_id)

    def _fit_out(self, there: _Node) -> None:
        """With what `init()`, and the script after it, look for in the home."""
        # The experiment is settled here, where all experiments are.
        settle_unnamed(self._folder)
        there.put(*self._record())
        record = self._folder.read_record()
        paths = [self._folder.journal_path(attempt) for attempt in range(1, self._attempt)]
        paths += [self._folder.changes_path, self._home.experiment(record.experiment_id).record_path]
        paths += [self._folder.run_info_path(self._attempt)]
        for path in paths:
            if path.exists():
                there.put(self._name(path), path.read_bytes())
        info = self._folder.read_run_info(self._attempt)
        if info is not None and info.latest_checkpoint is not None:
            self._put_checkpoint(there, info.latest_checkpoint)

    def _put_checkpoint(self, there: _Node, storage_id: str) -> None:
        """One that is in the home; a node can ask other storages itself."""
        stored = find_checkpoint(self._home, self._folder, storage_id)
        if stored is None or stored.storage != self._storage.url:
            return
        target = f"checkpoints/{storage_id}"
        with self._storage.open(storage_id) as directory:
            if there.call(node.files_below, there.root, target):
                return
            arriving = f"checkpoints/.arriving-{storage_id}"
            for path in sorted(directory.rglob("*")):
                name = f"{arriving}/{path.relative_to(directory).as_posix()}"
                if path.is_dir():
                    there.call(node.make_directory, there.root, name)
                else:
                    there.put(name, path.read_bytes())
            there.call(node.rename, there.root, arriving, target)

    def _record(self) -> tuple[str, bytes]:
        """The trial's record, as the node gets it: it makes no experiment."""
        record = msgspec.structs.replace(self._folder.read_record(), is_named=True)
        return f"runs/{self._folder.trial_id}/trial.json", encode_file(record)

    def _name(self, path: Path) -> str:
        return path.absolute().relative_to(self._home.root).as_posix()

    def _say_what_is_missing(self) -> None:
        journal = self._folder.journal_path(self._attempt)
        size = journal.stat().st_size if journal.exists() else 0
        logger.error(
            "trial %d: what attempt %d has recorded after byte %d of %s may be missing: %s It is in %s of its node. It "
            "comes home when workers of this home are there again",
            self._folder.trial_id,
            self._attempt,
            size,
            journal,
            self._problem,
            self._chief.root,
        )


class _Node:
    """A node, as one of its workers leads to it."""

    root: Path
    """Its spool."""

    def __init__(self, group: WorkerGroup, rank: int) -> None:
        self._group = group
        self._rank = rank

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Raises `NodeLostError`."""
        return self._group.call_beside(self._rank, function, *args, **kwargs)

    def put(self, name: str, content: bytes, *, is_whole: bool = False) -> None:
        for piece in [Piece(name, 0, content, is_whole=True)] if is_whole else in_pieces(name, content):
            self.call(node.put, self.root, piece)

    def fetch(self, name: str, size: int, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            while file.tell() < size:
                content = self.call(node.read_file, self.root, name, file.tell())
                if not content:
                    raise FileNotFoundError(name)
                file.write(content)


def _records(content: bytes) -> list[Record]:
    """Those of whole lines; bad lines are for who reads the journal."""
    found = []
    for line in content.split(b"\n"):
        with contextlib.suppress(ValueError):
            found.append(decode_line(line))
    return found
