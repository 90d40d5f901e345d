"""Records what people say about a home that lies elsewhere than it did: it was moved, or it is a copy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from core_sdk._ground.records import AttemptStarted
from core_sdk._home.folders import Home, Identity
from core_sdk._home.journal import find_records
from core_sdk.errors import CoreSDKError


def adopt(home: Home) -> bool:
    """Declares that the home was moved here: what it has begun, and stored outside, elsewhere is its own.

    What was merged from other homes stays theirs. Returns False if there was nothing to declare. Raises
    `RecordDamagedError` if the home does not know its name any more.
    """
    own, ownership = Identity.parse(home.identity()), home.ownership()
    earlier = {each for each in _recorded_identities(home) if Identity.parse(each).name == own.name}
    missing = sorted(each for each in earlier if not ownership.covers(each))
    if missing:
        home.adopt([str(own), *missing])
    return bool(missing)


def _recorded_identities(home: Home) -> Iterator[str]:
    """Yields the identities under which attempts ran in this home, and masters carried out its experiments."""
    for experiment_id in home.experiment_ids():
        with contextlib.suppress(CoreSDKError):
            if (search := home.experiment(experiment_id).read().own_search) is not None:
                yield search.home
    for trial_id in home.trial_ids():
        folder = home.folder(trial_id)
        with contextlib.suppress(PermissionError):  # another user's: nothing of it is adopted
            for attempt in folder.attempts():
                started = find_records(folder.journal_path(attempt), ('"attempt"',))
                yield from (record.home for record in started if isinstance(record, AttemptStarted))
