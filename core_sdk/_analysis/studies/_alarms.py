"""Warns of what makes the value of a try worth less than it seems."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence

from core_sdk._ground.records import CodeRecord
from core_sdk._home import Home, View
from core_sdk._home.finding.facts import Facts
from core_sdk._home.finding.noise import Sample
from core_sdk._home.finding.tries import Tries, Try, has_value_of_end, value_of
from core_sdk._home.sources import read_sources

_SILENT_S = 120.0
_BEGINNING_S = 30.0
"""After this time, nobody still begins the trials of a try."""
_MOST_FILES = 3


def alarms(home: Home, view: View, tries: Tries, one: Try) -> list[str]:
    """Returns what is suspicious about a try, in a few words each."""
    return [
        *_incomplete(one, time.time()),
        *about_values(tries, one),
        *(told for each in one.trials for told in _not_finite(view, tries, each)),
        *(told for each in one.trials for told in _silent(home, each)),
        *imported_elsewhere(home, one),
    ]


def _incomplete(one: Try, now: float) -> Iterator[str]:
    if one.num_missing and now - max(each.row.created for each in one.trials) > _BEGINNING_S:
        asked = len(one.trials) + one.num_missing
        yield f"{len(one.trials)} of {asked} seeds: `try --again --seeds {one.num_missing}` adds the others"


def about_values(tries: Tries, one: Try) -> Iterator[str]:
    row = one.row
    if row.parent is not None and tries.parent_of(one) is None:
        yield f"its parent {row.parent} was deleted"
    missing = [each for each in one.trials if has_value_of_end(each) and value_of(each, tries.metric) is None]
    if missing:
        yield f"{tries.metric.name} not reported by {_listed(missing)}"
    if one.sample is None:
        return
    if one.sample.count > 1 and one.sample.spread == 0.0:
        yield "its seeds gave the same value: it does not use the trial's seed"
    if (twin := _twin(tries, one)) is not None:
        yield f"exactly the values of {twin.try_id}: the change does nothing"


def _twin(tries: Tries, one: Try) -> Try | None:
    """Returns an earlier try whose trials with the same seeds have exactly the same values."""
    own = one.by_seed
    alike = {each.try_id: each for pair in own.items() for each in tries.by_value[pair] if each.try_id < one.try_id}
    for each in alike.values():
        if all(own[seed] == each.by_seed[seed] for seed in own.keys() & each.by_seed.keys()):
            return each
    return None


def study_alarms(tries: Tries) -> list[str]:
    """Returns what is suspicious about all tries together."""
    means = [one.sample.mean for one in tries.by_id.values() if one.sample is not None]
    if tries.pooled is None or len(means) < 3:
        return []
    spread = Sample(tuple(means)).spread or 0.0
    return ["its seeds differ more than its tries: more seeds would tell more"] if tries.pooled.spread > spread else []


def _not_finite(view: View, tries: Tries, trial: Facts) -> Iterator[str]:
    pair = trial.metric_named(tries.metric.name)
    if pair is None or math.isfinite(float(trial.figures[pair[0]][pair[1]].last)):
        return
    bins = view.bins(trial.row.trial_id, *pair, 1)
    bad = (steps for steps, count, num in zip(bins.first_steps, bins.counts, bins.finite_counts, strict=True)
           if num < count)  # fmt: skip
    yield f"{tries.metric.name} is not finite from step {next(bad, 0):g} in trial {trial.row.trial_id}"


def _silent(home: Home, trial: Facts) -> Iterator[str]:
    if trial.row.state != "ACTIVE":
        return
    folder = home.folder(trial.row.trial_id)
    times = [path.stat().st_mtime for n in folder.attempts() if (path := folder.journal_path(n)).exists()]
    silent_s = time.time() - max(times, default=trial.row.created)
    if silent_s > _SILENT_S:
        yield f"nothing reported by trial {trial.row.trial_id} for {silent_s:.0f} s"


def imported_elsewhere(home: Home, one: Try) -> Iterator[str]:
    """Says which files the first or the last trial of a try has imported from outside of its copy of the code."""
    for trial_id in dict.fromkeys((one.row.trial_id, one.trials[-1].row.trial_id)):
        folder = home.folder(trial_id)
        for attempt in folder.attempts():
            found = read_sources(folder.imported_path(attempt))
            names = sorted(name for name in (found.files if found else ()) if is_elsewhere(name, one.row.code))
            if names:
                more = f" and {len(names) - _MOST_FILES} more" if len(names) > _MOST_FILES else ""
                told = ", ".join(name.replace("../", "") for name in names[:_MOST_FILES])
                yield f"imported from elsewhere: {told}{more}"
                return


def is_elsewhere(name: str, code: CodeRecord | None) -> bool:
    """Returns whether a file, as seen from the directory of the command, is outside of the copy or linked into it."""
    if code is None:
        return False
    inside = os.path.normpath(f"{code.directory}/{name}" if code.directory else name)
    return inside.startswith("..") or any(f"{inside}/".startswith(f"{each}/") for each in code.linked)


def _listed(trials: Sequence[Facts]) -> str:
    return ", ".join(f"trial {each.row.trial_id}" for each in trials)
