"""How long a trial is to be trained, as its experiment's search says step by step: `runs/<id>/operations.journal`.

The master appends lengths, each when the trial has earned it, and a last word when no more can follow. The script's
`searcher.operations()` reads them as they come. A length is done once an attempt has recorded its `OperationCompleted`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from core_sdk.errors import ExperimentNotFoundError
from core_sdk.journal import find_records, read_journal
from core_sdk.records import OperationCompleted, OperationsClosed, OperationWanted
from core_sdk.tracking.home import Home, TrialFolder


def post_operations(folder: TrialFolder, lengths: Sequence[int], *, is_closed: bool = False) -> None:
    """Durably lets the script know `lengths`, all that were ever wanted, and with `is_closed` that no more follow.

    What was posted before is not repeated. One process at a time may post.
    """
    posted = PostedOperations(folder)
    posted.read()
    for length in lengths:
        if length not in posted.lengths:
            folder.append_operation(OperationWanted(time=time.time(), length=length))
    if is_closed and not posted.is_closed:
        folder.append_operation(OperationsClosed(time=time.time()))


class PostedOperations:
    """What was posted for a trial so far."""

    def __init__(self, folder: TrialFolder) -> None:
        self._path = folder.operations_path
        self._offset = 0
        self.lengths: list[int] = []
        self.is_closed = False
        """Whether no more can follow."""

    def read(self) -> None:
        """Reads what was posted since; costs one look at the file where nothing was."""
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
    """Whether nobody can post anything for the trial any more, so that a person who resumes it waits in vain."""
    try:
        search = Home(folder.home_root).experiment(folder.read_record().experiment_id).read().search
    except ExperimentNotFoundError:
        return True
    return search is not None and search.has_ended


def completed_lengths(folder: TrialFolder) -> set[int]:
    """The lengths for which an attempt of the trial has reported a metric."""
    journals: list[Path] = [folder.journal_path(attempt) for attempt in folder.attempts()]
    found = (record for path in journals for record in find_records(path, ['"operation"']))
    return {record.length for record in found if isinstance(record, OperationCompleted)}
