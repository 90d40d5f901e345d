"""Shows an experiment as it goes on: a table that changes in a terminal, and else a line for all that happens."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self

import click
from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from core_sdk._execution.experiments._trial import TrialStateMachine, Wish
from core_sdk._execution.experiments.following import Follower
from core_sdk._ground.masking import masked_values
from core_sdk._ground.records import (
    AttemptBegun,
    AttemptOver,
    Event,
    ExperimentEnded,
    TrialNumbered,
    ValidationRead,
    format_number,
    from_json,
)
from core_sdk._home import open_view
from core_sdk._home.finding.facts import flat_hparams
from core_sdk._interfaces.cli._failures import ExitCode
from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.render.output import print_object
from core_sdk._interfaces.render.text import printable

# Reading the index takes longer than reading the events.
_STEPS_S = 1.0
# The lines above and below the rows of trials.
_NUM_OTHER_LINES = 8


def leave(follower: Follower) -> int:
    """Says that the experiment goes on without being shown."""
    experiment_id = follower.experiment.experiment_id
    say(
        f"experiment {experiment_id} goes on. `core-sdk experiment follow {experiment_id}` shows it again, "
        f"`core-sdk experiment kill {experiment_id}` ends it"
    )
    return ExitCode.CANCELED


def show(follower: Follower, *, as_json: bool = False, interrupt: Callable[[Follower], int] = leave) -> int:
    """Shows the experiment until it ends, or with `as_json` only its end. Returns the exit status.

    After Ctrl-C the exit status is what `interrupt` returns.
    """
    console = Console()
    display: _Lines | _LiveTable | None = None
    try:
        with contextlib.ExitStack() as at_end:
            if as_json:
                at_end.callback(_print_json, follower)
            elif console.is_terminal:
                display = at_end.enter_context(_LiveTable(follower, console))
            else:
                display = _Lines(follower)
            for events in follower.follow():
                if display is not None:
                    display.update(events)
    except KeyboardInterrupt:
        return interrupt(follower)
    if follower.experiment.state == "COMPLETED":
        return ExitCode.OK
    _say_what_failed(follower)
    return ExitCode.FAILURE


def _say_what_failed(follower: Follower) -> None:
    """Says how the output of a failed trial ends, since this tells more than an exit status."""
    failed = [trial for trial in follower.experiment.trials.values() if trial.state == "ERROR" and trial.trial_id]
    for trial in failed[-1:]:
        folder = follower.home.folder(trial.trial_id or 0)
        with contextlib.suppress(OSError):
            lines = folder.log_path(trial.last_attempt).read_text(errors="replace").rstrip().splitlines()
            for line in lines[-1:]:
                say(f"the output of trial {folder.trial_id} ends with: {printable(line)}")
                say(f"`core-sdk trial logs {folder.trial_id}` shows all of it")


def _print_json(follower: Follower) -> None:
    with open_view(follower.home) as view:
        print_object(view.experiment(follower.experiment.experiment_id))


class _Lines:
    """Prints a line for each event."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._experiment = follower.experiment
        self._told: set[str] = set()

    def update(self, events: Sequence[Event]) -> None:
        for event in events:
            for line in self._lines(event):
                click.echo(printable(line))
        for warning in self._experiment.warnings:
            if warning not in self._told:
                say(f"experiment {self._experiment.experiment_id}: {warning}")
                self._told.add(warning)

    def _lines(self, event: Event) -> Iterator[str]:
        if isinstance(event, ExperimentEnded):
            yield _with_reason(f"experiment {self._experiment.experiment_id}: {event.state}", event.reason)
        elif isinstance(event, TrialNumbered | AttemptBegun | ValidationRead | AttemptOver):
            trial = self._experiment.trials[event.request_id]
            yield from (f"trial {trial.trial_id}{words}" for words in self._words(event, trial))

    def _words(
        self, event: TrialNumbered | AttemptBegun | ValidationRead | AttemptOver, trial: TrialStateMachine
    ) -> Iterator[str]:
        match event:
            case TrialNumbered():
                yield f" begins: {_hparams(trial)}" if trial.hparams else " begins"
            case AttemptBegun() if event.attempt > 1:
                yield f" goes on with attempt {event.attempt}"
            case ValidationRead() if event.metric is not None:
                at = "" if event.length is None else f" at {format_number(event.length)}"
                yield f"{at}: {self._follower.searcher.metric} {format_number(from_json(event.metric))}"
            case AttemptOver() if trial.is_over and event.attempt == trial.last_attempt:
                yield _with_reason(f": {trial.state}", trial.reason)
            case AttemptOver():
                yield _with_reason(f": attempt {event.attempt} {event.outcome}", event.reason)


class _LiveTable(AbstractContextManager["_LiveTable"]):
    """A table of the trials, first those that run and then the best, with the progress of the whole search."""

    def __init__(self, follower: Follower, console: Console) -> None:
        self._follower = follower
        self._experiment = follower.experiment
        self._console = console
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4)
        self._steps: dict[int, int] = {}
        self._read_steps = -_STEPS_S

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._update_steps()
        self._live.__exit__(*error)

    def update(self, events: Sequence[Event]) -> None:
        if time.monotonic() - self._read_steps > _STEPS_S:
            self._update_steps()

    def _update_steps(self) -> None:
        with open_view(self._follower.home) as view:
            rows = view.trials(self._experiment.experiment_id)
        self._steps = {row.trial_id: row.steps_completed for row in rows}
        self._read_steps = time.monotonic()

    def _render(self) -> Group:
        experiment, best = self._experiment, self._follower.best_trial
        head = [f"Experiment {experiment.experiment_id}", printable(self._follower.name), experiment.state]
        head += [f"{len(experiment.trials)} trials, {experiment.num_running} running"]
        if best is not None:
            head += [f"best: trial {best[0]} with {self._follower.searcher.metric} {format_number(best[1])}"]
        # The bar alone does not end its line.
        bar = Padding(ProgressBar(1.0, experiment.progress), 0)
        parts: list[Any] = [Text(" · ".join(head)), bar, self._table()]
        parts += [Text(printable(warning), style="yellow") for warning in experiment.warnings]
        parts += [Text(printable(experiment.reason))] if experiment.reason else []
        return Group(*parts)

    def _table(self) -> Table:
        lengths = self._experiment.rung_lengths
        table = Table(box=None, pad_edge=False)
        for title in ("Trial", "State", *(["Rung"] if len(lengths) > 1 else []), "Steps"):
            table.add_column(title, justify="left" if title == "State" else "right", no_wrap=True)
        table.add_column(printable(self._follower.searcher.metric), justify="right", no_wrap=True)
        table.add_column("Best", justify="right", no_wrap=True)
        table.add_column("Hyperparameters", no_wrap=True, overflow="ellipsis")
        trials = self._in_order(trial for trial in self._experiment.trials.values() if trial.trial_id is not None)
        num_shown = max(self._console.height - _NUM_OTHER_LINES, 1)
        for trial in trials[:num_shown]:
            table.add_row(*self._cells(trial, lengths))
        if len(trials) > num_shown:
            table.caption = f"and {len(trials) - num_shown} more: `core-sdk experiment trials` lists all"
        return table

    def _in_order(self, trials: Iterable[TrialStateMachine]) -> list[TrialStateMachine]:
        sign = 1 if self._follower.searcher.smaller_is_better else -1
        best = self._follower.best

        def rank(trial: TrialStateMachine) -> tuple[bool, bool, float]:
            value = best.get(trial.request_id)
            return not trial.is_running, value is None, 0.0 if value is None else sign * value

        return sorted(trials, key=rank)

    def _cells(self, trial: TrialStateMachine, lengths: Sequence[int]) -> list[str]:
        best = self._follower.best.get(trial.request_id)
        rung = [f"{sum(length <= trial.last_length for length in lengths)}/{len(lengths)}"] if len(lengths) > 1 else []
        return [
            str(trial.trial_id),
            _state(trial),
            *rung,
            str(self._steps.get(trial.trial_id or 0, 0)),
            "" if trial.metric is None else format_number(from_json(trial.metric)),
            "" if best is None else format_number(best),
            printable(_hparams(trial)),
        ]


def _state(trial: TrialStateMachine) -> str:
    if trial.state is not None:
        return trial.state
    if trial.is_running:
        return "RUNNING" if trial.stop is None else "STOPPING"
    return "PAUSED" if trial.wish is Wish.REST else "QUEUED"


def _hparams(trial: TrialStateMachine) -> str:
    shown = flat_hparams(masked_values(trial.hparams))
    return " ".join(f"{name}={format_number(value)}" for name, value in shown.items())


def _with_reason(words: str, reason: str) -> str:
    return f"{words} ({reason})" if reason else words
