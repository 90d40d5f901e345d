"""The lengths to which a search wants a trial to be trained, in `runs/<id>/operations.journal`.

The master appends each length when the search asks for it, and a last record when no more can follow. The script's
`searcher.operations()` reads them as they come. A length is done once an attempt has recorded its `OperationCompleted`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from core_sdk._ground.records import OperationCompleted, OperationsClosed, OperationWanted
from core_sdk._home.folders import Home, TrialFolder
from core_sdk._home.journal import find_records, read_journal
from core_sdk.errors import ExperimentNotFoundError


def post_operations(folder: TrialFolder, lengths: Sequence[int], *, is_closed: bool = False) -> None:
    """Durably posts `lengths` to the script, and with `is_closed` the fact that no more follow.

    `lengths` are all that were ever wanted; those that were posted before are not repeated. One process at a time may
    post.
    """
    posted = PostedOperations(folder)
    posted.read()
    for length in lengths:
        if length not in posted.lengths:
            folder.append_operation(OperationWanted(time=time.time(), length=length))
    if is_closed and not posted.is_closed:
        folder.append_operation(OperationsClosed(time=time.time()))


class PostedOperations:
    """The lengths that were posted for a trial, as of the last `read()`."""

    def __init__(self, folder: TrialFolder) -> None:
        self._path = folder.operations_path
        self._offset = 0
        self.lengths: list[int] = []
        self.is_closed = False
        """Whether no more can follow."""

    def read(self) -> None:
        """Reads what was posted since the last call. If nothing was, this only checks the size of the file."""
        if not self._path.exists() or self._path.stat().st_size == self._offset:
            return
        for chunk in read_journal(self._path, self._offset):
            self._offset = chunk.end_offset
            for record in chunk.records:
                match record:
                    case OperationWanted():
                        self.lengths.append(record.length)
                    case OperationsClosed():
                        self.is_closed = True


def has_search_ended(folder: TrialFolder) -> bool:
    """Returns whether nothing can be posted for the trial any more, so that a resumed attempt would wait in vain."""
    try:
        record = Home(folder.home_root).experiment(folder.read_record().experiment_id).read()
    except ExperimentNotFoundError:
        return True
    if not record.is_submitted or record.is_received:
        return True  # the trial was fetched, and its search is elsewhere
    return record.search is not None and record.search.has_ended


def completed_lengths(folder: TrialFolder) -> set[int]:
    """Returns the lengths for which an attempt of the trial has reported a metric."""
    journals: list[Path] = [folder.journal_path(attempt) for attempt in folder.attempts()]
    found = (record for path in journals for record in find_records(path, ['"operation"']))
    return {record.length for record in found if isinstance(record, OperationCompleted)}
