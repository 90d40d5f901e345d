"""Where the time of a trial, of an experiment and of the home went."""

from __future__ import annotations

import msgspec

from core_sdk._analysis.machine_use import read_machine_use
from core_sdk._home.finding.time_ledger import TimeLedger, read_ledger
from core_sdk._home.time_spent import PHASES
from core_sdk._interfaces.server.route import Id
from core_sdk._interfaces.server.shared_view import SharedView


class PhaseTime(msgspec.Struct, frozen=True):
    name: str
    ms: int
    share: float | None
    """The share in the time that was not stopped on purpose; null for that."""


class TimeAnswer(msgspec.Struct, frozen=True):
    wall_ms: int
    """The sum of all phases."""
    phases: list[PhaseTime]
    num_trials: int
    num_attempts: int
    num_failures: int
    num_saves: int
    """The saves of which it is known for how long they have held up the training."""
    save_s: float | None
    """The mean of that."""
    interval_s: float | None
    """The mean time of the training between two checkpoints."""
    best_interval_s: float | None
    """The time between two saves that loses the least time."""
    failure_s: float | None
    """The mean time of attempts until one fails."""
    are_failures_of_home: bool
    """Whether this is that of all trials of the home."""
    words: str
    """All this in one line."""
    machine: str = ""
    """How the trial has used its machines, in one line; empty if nothing was recorded of that."""


def trial_time(shared: SharedView, trial_id: Id) -> TimeAnswer:
    """Returns where the time of a trial went, up to now if it runs."""
    shared.ask(lambda view: view.trial(trial_id))
    use = shared.ask(lambda view: read_machine_use(view, trial_id))
    answer = _answer(shared.ask(lambda view: read_ledger(view, trial_id=trial_id)))
    return msgspec.structs.replace(answer, machine=use.words() if use else "")


def experiment_time(shared: SharedView, experiment_id: Id) -> TimeAnswer:
    """Returns where the time of an experiment's trials went, added up over all of them."""
    shared.ask(lambda view: view.experiment(experiment_id))
    return _answer(shared.ask(lambda view: read_ledger(view, experiment_id=experiment_id)))


def home_time(shared: SharedView) -> TimeAnswer:
    """Returns where the time of all trials went, added up over all of them."""
    return _answer(shared.ask(read_ledger))


def _answer(ledger: TimeLedger) -> TimeAnswer:
    shares = ledger.shares
    return TimeAnswer(
        wall_ms=ledger.time.wall,
        phases=[PhaseTime(name, getattr(ledger.time, name), shares.get(name)) for name in PHASES],
        num_trials=ledger.num_trials,
        num_attempts=ledger.num_attempts,
        num_failures=ledger.num_failures,
        num_saves=ledger.num_saves,
        save_s=ledger.save_s,
        interval_s=ledger.interval_s,
        best_interval_s=ledger.best_interval_s,
        failure_s=ledger.failure_s,
        are_failures_of_home=ledger.are_failures_of_home,
        words=ledger.words(),
    )
