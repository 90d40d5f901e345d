"""The searches of submitted experiments on their way to a workspace, each with one of its trials.

First come the events, and what they mean only once all of them are there, so that a reader never sees less than the
record says. A copy of the home that has gone on has other events: then nothing of its search is sent.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from core_sdk._ground.alive import is_alive
from core_sdk._ground.records import (
    ExperimentRecord,
    SubmissionRecord,
    decode_file,
    decode_values,
    encode_file,
    encode_values,
    from_json,
)
from core_sdk._home.folders import Home
from core_sdk._workspace.files import CONFIG, EVENTS, ORIGINAL_CONFIG, SEARCH, SUBMISSION, experiment_file
from core_sdk._workspace.sending import SentFiles, sent_size
from core_sdk._workspace.wire import Extent, PieceHead
from core_sdk.errors import CoreSDKError

_MASTER_S = 60.0
"""The longest time for which a search that goes on waits for a master."""


class SearchPush:
    """Knows how much of a search has arrived, and what comes next. Only one thread may use it."""

    def __init__(self, home: Home, experiment_id: int) -> None:
        self.is_left = False
        """Whether nothing more is sent with the trial of `take`."""
        self._home = home
        self._folder = home.experiment_folder(experiment_id)
        self._number = 0
        edits = {
            CONFIG: _masked_config,
            ORIGINAL_CONFIG: self._original_config,
            SUBMISSION: self._submission,
            SEARCH: _search,
        }
        self.files = SentFiles(edits)

    def take(self, number: int, arrived: Mapping[str, Extent]) -> str:
        """Takes what the workspace has said with a trial of the search, which has this number there.

        Returns what is to be told of it.
        """
        self._number, self.is_left = number, False
        self.files.take({name: each for name, each in arrived.items() if experiment_file(name) or _is_code(name)})
        with contextlib.suppress(OSError):
            if self.files.is_other(EVENTS, self._folder.events_path):
                self.leave_out(EVENTS)
                return f"the search of experiment {self._folder.experiment_id} went on otherwise there, and is not sent"
        return ""

    def taken(self, head: PieceHead, size_bytes: int) -> None:
        self.files.taken(head, size_bytes)

    def leave_out(self, name: str) -> None:
        self.files.left_out.add(name)

    def news(self) -> Iterator[tuple[PieceHead, bytes]]:
        """Yields one piece of the events, or one of each other file if there are no new ones."""
        with contextlib.suppress(OSError, ValueError, CoreSDKError):  # a damaged file is named by readers here
            if self.is_left or EVENTS in self.files.left_out or self._folder.read().is_received:
                return
            if events := list(self.files.piece(self._number, EVENTS, self._folder.events_path)):
                yield from events
                return
            arrived = self.files.arrived.get(EVENTS)
            if arrived is None or arrived.size_bytes > sent_size(EVENTS, self._folder.events_path):
                return  # the home is an older copy
            code = self._folder.read_submission().code
            for name, path in (
                (CONFIG, self._folder.completed_config_path),
                (ORIGINAL_CONFIG, self._folder.config_path),
                (SUBMISSION, self._folder.submission_path),
                *([] if code is None else [(f"code/{code}.tar.gz", self._home.code_archive(code))]),
                (SEARCH, self._folder.record_path),
            ):
                with contextlib.suppress(FileNotFoundError):
                    yield from self.files.piece(self._number, name, path)

    def _original_config(self, content: bytes) -> bytes:
        """Returns the configuration as its author wrote it, or if it has secrets the complete one without them."""
        values = self._folder.read_config()
        if (shown := _masked(values)) == values:
            return content
        from core_sdk._ground.config import from_mapping, to_yaml  # YAML, which few pushers need

        return to_yaml(from_mapping(from_json(shown)).config).encode()

    def _submission(self, content: bytes) -> bytes:
        record = decode_file(content, SubmissionRecord)
        original = self._original_config(self._folder.config_path.read_bytes())
        is_masked = hashlib.sha256(original).hexdigest() != record.config_sha256
        shown = msgspec.structs.replace(
            record,
            environment={},
            key="",
            overrides=[] if is_masked else record.overrides,
            config_sha256=hashlib.sha256(original).hexdigest(),
        )
        return encode_file(shown)


class GoingSearches:
    """The searches of a home that go on, of which more is to be sent although a trial has ended."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._without_master: dict[int, float] = {}
        """The times from which on there was no master, by experiment."""

    def carriers(self, trial_ids: Iterable[int]) -> set[int]:
        """Returns the newest of these trials of each search that goes on."""
        newest: dict[int, int] = {}
        for trial_id in sorted(trial_ids):
            with contextlib.suppress(CoreSDKError, OSError):
                newest[self._home.folder(trial_id).read_record().experiment_id] = trial_id
        return {trial_id for experiment_id, trial_id in newest.items() if self._goes_on(experiment_id)}

    def _goes_on(self, experiment_id: int) -> bool:
        search = None
        with contextlib.suppress(CoreSDKError, OSError):
            search = self._home.experiment(experiment_id).read().own_search
        if search is None or search.has_ended or search.is_damaged:
            return False
        if search.state == "PAUSED" and not search.num_running:
            return False
        now = time.monotonic()
        if is_alive(self._home.master_lock):
            self._without_master.pop(experiment_id, None)
            return True
        # One that was killed comes back when its trials have ended.
        return now - self._without_master.setdefault(experiment_id, now) < _MASTER_S


def _is_code(name: str) -> bool:
    return name.startswith("code/")


def _masked(values: dict[str, object]) -> dict[str, object]:
    from core_sdk._ground.config import masked  # as above

    return masked(values)


def _masked_config(content: bytes) -> bytes:
    return encode_values(_masked(decode_values(content)))


def _search(content: bytes) -> bytes:
    """Returns the state of the search, from its experiment's record."""
    search = decode_file(content, ExperimentRecord).search
    if search is None:
        raise ValueError("no master has begun it")
    # The record may be newer than the events that have been sent before it.
    return encode_file(msgspec.structs.replace(search, num_events=0))
