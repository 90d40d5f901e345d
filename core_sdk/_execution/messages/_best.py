"""Posts that a trial, or a try of a study, is the best of its experiment so far.

It needs the index, which an agent imports only if somebody wants to hear of it.
"""

from __future__ import annotations

import contextlib
import sqlite3

from core_sdk._execution.messages._posting import post_of_trial
from core_sdk._execution.messages._targets import read_targets
from core_sdk._ground.records import SearcherMetric, format_number
from core_sdk._home import Home, open_view
from core_sdk._home.finding.best import best_trial
from core_sdk._home.finding.tries import read_tries
from core_sdk._home.folders import TrialFolder
from core_sdk._home.view import View
from core_sdk.errors import CoreSDKError


def post_best(folder: TrialFolder) -> None:
    """Posts it once for each value, if the experiment has others."""
    with contextlib.suppress(CoreSDKError, OSError, ValueError, sqlite3.Error):
        home = Home(folder.home_root)
        if not any("best" in target.kinds for target in read_targets(home.root)):
            return
        with open_view(home) as view:
            words = _words(home, view, folder.trial_id)
        if words:
            post_of_trial(folder, "best", words, words)


def _words(home: Home, view: View, trial_id: int) -> str:
    """Says how good it is; empty if another one is better, or if it is the only one."""
    row = view.trial(trial_id)
    study = home.experiment(row.experiment_id).read().study
    if study is None:
        best = best_trial(home, view, row.experiment_id)
        is_best = best is not None and best.trial_id == trial_id and len(view.trial_ids(row.experiment_id)) > 1
        return str(best) if is_best else ""
    tries = read_tries(view, row.experiment_id, SearcherMetric.named(study.best_by))
    one = tries.best
    if one is None or one.sample is None or not one.has_trial(trial_id) or len(tries.by_id) < 2:
        return ""
    return f"try {one.try_id}, with a mean {tries.metric.name} of {format_number(one.sample.mean)}"
