"""Watches what the chief reports by guards: records the trouble that they find, and then asks for the stop."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from core_sdk._ground.data.places import DataPlaces
from core_sdk._ground.guards import Guard, MetricWatch, Trouble, checked_guards, place_of, words_of
from core_sdk._ground.records import (
    Alert,
    AttemptStarted,
    Detour,
    Record,
    Report,
    Setback,
    TroubleFound,
    metrics_from_json,
)
from core_sdk._home import TrialFolder
from core_sdk._home.attempts.claiming import Attempt
from core_sdk._home.attempts.setbacks import read_troubles, stop_source
from core_sdk._home.journal import HeardJournal, Journal, find_records
from core_sdk._home.superseding import kept_until
from core_sdk.core._preempt import PreemptContext

logger = logging.getLogger("core_sdk.guards")


def guards_of(attempt: Attempt, given: Sequence[Guard | Mapping[str, Any]]) -> tuple[Guard, ...]:
    """Returns the guards of an attempt: of its command line, else of its configuration, else those `given` to `init()`.

    Raises `ValueError` for recorded ones that cannot be read.
    """
    return checked_guards(attempt.record.guards or attempt.info.trial.config.get("guards") or given)


class Guarding:
    """The guards of an attempt. Only the chief has them: the stop flag tells the other ranks."""

    def __init__(self, attempt: Attempt, guards: Sequence[Guard]) -> None:
        folder, earlier = attempt.folder, [each for each in attempt.folder.attempts() if each < attempt.number]
        backs = [each.guard for _, each in read_troubles(folder, earlier) if each.action == "go_back"]
        times_back = {number: backs.count(words_of(guard)) for number, guard in enumerate(guards)}
        self._guards = guards
        setback = attempt.info.trial.setback
        has_gone_back = setback is not None and not setback.begins_anew
        self._watch = MetricWatch(guards, attempt.start.resumed_steps, times_back, has_gone_back=has_gone_back)
        for report in _visible_reports(folder, earlier, attempt.start.resumed_steps):
            self._watch.know(report.group, report.steps_completed, self._numbers(report))
        self.preempt: PreemptContext | None = None
        """Set once the Context is made: nothing is reported before."""

    def guarded(self, journal: Journal) -> Journal:
        """Returns the journal, whose reports are watched."""
        return _GuardedJournal(journal, self)

    def find(self, record: Record) -> list[tuple[Trouble, TroubleFound]]:
        """Returns the trouble that a record tells of, each with its record."""
        if type(record) is not Report:
            return []
        found = self._watch.feed(record.group, record.steps_completed, self._numbers(record))
        return [(trouble, self._recorded(trouble)) for trouble in found]

    def act(self, trouble: Trouble) -> None:
        """Does what the guard says about a trouble that is recorded."""
        logger.warning("guard: step %d: %s", trouble.steps, trouble.reason)
        if trouble.action != "alert" and self.preempt is not None:
            self.preempt.ask_to_stop(stop_source(trouble.reason))

    def _numbers(self, report: Report) -> dict[str, float]:
        known = {name for group, name in map(place_of, self._guards) if group == report.group}
        return dict(metrics_from_json({name: report.metrics[name] for name in known if name in report.metrics}))

    def _recorded(self, trouble: Trouble) -> TroubleFound:
        guard = self._guards[trouble.guard]
        is_back = trouble.action == "go_back"
        skipped = guard.skip_batches if is_back else None
        return TroubleFound(
            time=time.time(),
            guard=words_of(guard),
            action=trouble.action,
            steps=trouble.steps,
            good_until=trouble.good_until,
            spoils=is_back or (trouble.action == "stop" and guard.not_better_for is None),
            reason=trouble.reason,
            detours=None
            if skipped is None
            else [Detour(**place._asdict(), num_batches=skipped) for place in DataPlaces.now()],
            reshuffles=is_back and guard.reshuffle,
        )


class _GuardedJournal(HeardJournal):
    """Records trouble before the report that tells of it, so that no death of the process comes in between."""

    def __init__(self, journal: Journal, guarding: Guarding) -> None:
        super().__init__(journal, lambda record: None)
        self._guarding = guarding

    def append_under_lock(self, record: Record) -> None:
        decided = []
        for trouble, found in self._guarding.find(record):
            try:
                super().append_or_raise(found)
                super().append_under_lock(_alert(trouble, time.time()))
            except OSError as error:  # a full disk: what is not recorded is not done
                logger.error("the trouble at step %d cannot be recorded, and is ignored: %s", trouble.steps, error)
            else:
                decided.append(trouble)
        super().append_under_lock(record)
        for trouble in decided:
            self._guarding.act(trouble)


def tell_setback(attempt: Attempt) -> None:
    """Tells people that this attempt is the one that goes back."""
    setback = attempt.info.trial.setback
    if setback is not None and setback.attempt == attempt.number - 1:
        words = went_back(setback, attempt.start.resumed_steps)
        logger.warning("%s", words)
        attempt.journal.append(Alert(time=time.time(), title="went back", description=words, level="warn"))


def went_back(setback: Setback, steps: int) -> str:
    return f"went back from step {setback.from_steps:,} to {steps:,}: {setback.reason}"


def _alert(trouble: Trouble, now: float) -> Alert:
    then = {"alert": "", "stop": "; the training stops", "go_back": "; the trial goes back"}[trouble.action]
    return Alert(
        time=now, title=f"guard: {trouble.reason}", description=f"at step {trouble.steps:,}{then}", level="warn"
    )


def _visible_reports(folder: TrialFolder, attempts: Sequence[int], until: int) -> Iterator[Report]:
    """Yields the reports of earlier attempts that a later one has not superseded, up to a step."""
    read: dict[int, list[Report]] = {}
    resumed_steps: dict[int, int | None] = dict.fromkeys(attempts)
    for number in attempts if until else ():
        read[number] = []
        for record in find_records(folder.journal_path(number), ['"attempt"', '"report"']):
            if isinstance(record, Report):
                read[number].append(record)
            elif isinstance(record, AttemptStarted):
                resumed_steps[number] = record.resumed_steps
    kept = kept_until(resumed_steps)
    for number in sorted(read):
        yield from (each for each in read[number] if each.steps_completed <= min(until, kept[number]))
