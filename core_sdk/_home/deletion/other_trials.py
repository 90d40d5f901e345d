"""Finds the checkpoints of a training that other trials need; the training asks again and again while it runs."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace

from core_sdk._home.deletion.references import read_trials
from core_sdk._home.deletion.retention import References
from core_sdk._home.folders import Home

_SETTLED_NS = 10 * 10**9
"""The age from which the time of a folder's last change tells a later change apart from it."""


class OtherTrials:
    """The references to checkpoints from all trials of a home but one.

    A trial that does not run is read again only after its folder has changed: a new attempt adds files to it, and a
    record is replaced.
    """

    def __init__(self, home: Home, trial_id: int) -> None:
        self._home = home
        self._trial_id = trial_id
        self._idle: dict[int, int] = {}
        """The time at which the folder of each trial that does not run was last changed, by trial."""
        self._sources: defaultdict[str, set[int]] = defaultdict(set)

    def references(self) -> References:
        """Reads the references as they are now. Raises `RecordDamagedError` if some cannot be known."""
        now = time.time_ns()
        changed = {
            trial_id: changed_at
            for trial_id, changed_at in self._home.trial_changes().items()
            if trial_id != self._trial_id and self._idle.get(trial_id) != changed_at
        }
        unchanged = self._idle.keys() - changed.keys()
        _, found = read_trials(self._home, without={self._trial_id, *unchanged})
        for sources in self._sources.values():
            sources.difference_update(changed)
        for storage_id, trials in found.sources.items():
            self._sources[storage_id].update(trials)
        for trial_id, changed_at in changed.items():
            self._idle.pop(trial_id, None)
            is_settled = changed_at < now - _SETTLED_NS
            if is_settled and trial_id not in found.running and trial_id not in found.damaged:
                self._idle[trial_id] = changed_at
        return replace(found, sources=self._sources)
