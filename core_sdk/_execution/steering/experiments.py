"""Steers, describes, labels and deletes experiments.

Every verb raises `ExperimentNotFoundError` for an unknown one.

A submitted experiment is steered by the master of its home, which is started if none runs, and whose refusals are
`MasterError`. An experiment that was begun by a script has no master: its trials are steered one by one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from core_sdk._execution.experiments.calling import call
from core_sdk._execution.experiments.protocol import ChangeSettings, Move, Want
from core_sdk._execution.steering import trials
from core_sdk._execution.steering.checks import check_unchanged, checked_labels, checked_text
from core_sdk._execution.steering.verb import Verb, changing, verb
from core_sdk._ground.records import Wish
from core_sdk._home import Home, open_view
from core_sdk._home.attempts.command import script_name
from core_sdk._home.folders import with_reserve
from core_sdk.errors import AttemptError, ExperimentError, TrialNotRunningError

if TYPE_CHECKING:
    from core_sdk._execution.experiments.submission import Submitted

Priority = Annotated[int, msgspec.Meta(ge=1, le=99)]
MaxSlots = Annotated[int, msgspec.Meta(ge=-1, le=1 << 20)]


@dataclass(frozen=True)
class Steered:
    state: str
    """The state of the experiment after that."""
    trial_ids: tuple[int, ...] = ()
    """The trials that were asked to stop, or killed, in an experiment without a master."""
    done: str = ""
    """The words for that, such as "killed"."""

    @property
    def outcome(self) -> str:
        """Says what was done to the trials if no master steers them, else the new state of the experiment."""
        return f"its {len(self.trial_ids)} running trials were {self.done}" if self.trial_ids else self.state


def config_of_command(
    command: Sequence[str],
    *,
    name: str = "",
    description: str = "",
    labels: Iterable[str] = (),
    hparams: Mapping[str, Any] = {},
    metric: str = "loss",
    max_restarts: int = 5,
    resources: Mapping[str, Any] = {},
) -> dict[str, Any]:
    """Returns the configuration of an experiment whose only trial runs this command, with these hyperparameters."""
    return {
        "name": name or script_name(command),
        "description": description,
        "labels": list(labels),
        "entrypoint": list(command),
        "hyperparameters": {key: {"type": "const", "val": value} for key, value in hparams.items()},
        "searcher": {"name": "single", "metric": metric},
        "max_restarts": max_restarts,
        "resources": dict(resources),
    }


def submit(home: Home, config: Mapping[str, Any]) -> Submitted:
    """Submits an experiment whose trials run in the current directory. Raises the errors of `submission.submit`."""
    from core_sdk._execution.experiments import submission  # storages, which the other verbs do not need

    text, source = submission.read_config(config)
    return submission.submit(home, text, source=source)


@verb("experiment", "pause", "experiment {experiment_id}: {answer.outcome}", is_asked_of_home=True)
def pause(home: Home, experiment_id: int, by: str) -> Steered:
    """Lets the trials save their checkpoints and stop. No trial is started until `activate`.

    Raises `AttemptError` if the experiment was not submitted and none of its trials runs.
    """
    if is_submitted(home, experiment_id):
        return _want(home, experiment_id, "PAUSED", by)
    return _steer_trials(home, experiment_id, trials.pause, by, "asked to stop")


@verb("experiment", "activate", "experiment {experiment_id}: {answer.outcome}", is_asked_of_home=True)
def activate(home: Home, experiment_id: int, by: str) -> Steered:
    """Lets an experiment that is paused go on, which must have been submitted."""
    check_submitted(home, experiment_id, "`core-sdk trial resume ID` goes on with a trial that is paused")
    return _want(home, experiment_id, "ACTIVE", by)


@verb("experiment", "cancel", "experiment {experiment_id}: {answer.outcome}", is_asked_of_home=True)
def cancel(home: Home, experiment_id: int, by: str) -> Steered:
    """Ends an experiment, which must have been submitted: its trials save their checkpoints and stop."""
    check_submitted(home, experiment_id, "pausing it stops its trials")
    return _want(home, experiment_id, "CANCELED", by)


@verb("experiment", "kill", "experiment {experiment_id}: {answer.outcome}", is_asked_of_home=True)
def kill(home: Home, experiment_id: int, by: str) -> Steered:
    """Ends the experiment at once by killing its trials.

    Raises `AttemptError` if the experiment was not submitted and none of its trials runs.
    """
    if is_submitted(home, experiment_id):
        return _want(home, experiment_id, "KILLED", by)
    return _steer_trials(home, experiment_id, trials.kill, by, "killed")


def is_submitted(home: Home, experiment_id: int) -> bool:
    """Returns whether a master carries out the experiment. Raises `ExperimentError` if it is that of another home."""
    return home.experiment(experiment_id).read_own().is_submitted


def check_submitted(home: Home, experiment_id: int, advice: str) -> None:
    """Raises `ExperimentError`, with this advice, for an experiment that was begun by a script."""
    if not is_submitted(home, experiment_id):
        raise ExperimentError.of(experiment_id, f"was not submitted, and has no searcher: {advice}")


def _want(home: Home, experiment_id: int, state: Wish, by: str) -> Steered:
    return Steered(call(home.root, Want(experiment_id=experiment_id, state=state, by=by)).state)


def _steer_trials(home: Home, experiment_id: int, steer: Verb[[Home, int, str], object], by: str, done: str) -> Steered:
    with open_view(home) as view:
        running = [row.trial_id for row in view.trials(experiment_id) if row.state in ("ACTIVE", "QUEUED")]
    if not running:
        raise AttemptError(
            f"cannot {steer.name} experiment {experiment_id}: none of its trials is running. `core-sdk trial list "
            f"--experiment {experiment_id}` shows how they ended."
        )
    for trial_id in running:
        with contextlib.suppress(TrialNotRunningError):  # it has just ended
            steer(home, trial_id, by)
    with open_view(home) as view:
        return Steered(view.experiment(experiment_id).state, tuple(running), done)


@verb("experiment", "settings", "changed the settings of experiment {experiment_id}", is_asked_of_home=True)
def set_slots(
    home: Home, experiment_id: int, *, priority: Priority | None = None, max_slots: MaxSlots | None = None
) -> None:
    """Changes how a submitted experiment gets slots. What is None is left unchanged.

    The priority is from 1 to 99, and smaller numbers are served first. `max_slots` of -1 takes the limit away.
    """
    check_submitted(home, experiment_id, "no master gives its trials slots")
    call(home.root, ChangeSettings(experiment_id=experiment_id, priority=priority, max_slots=max_slots))


def move(home: Home, experiment_id: int, *, ahead_of: int | None = None, behind: int | None = None) -> None:
    """Puts a submitted experiment directly before or behind another one of the home, whose priority it gets.

    Give one of both. Raises `ValueError` otherwise, and `MasterError` if one of the experiments has ended.
    """
    if (other_id := behind if ahead_of is None else ahead_of) is None or None not in (ahead_of, behind):
        raise ValueError("an experiment is moved ahead of one or behind one: give one of both")
    home.check_changeable()
    for each in (experiment_id, other_id):
        check_submitted(home, each, "no master gives its trials slots")
    call(home.root, Move(experiment_id=experiment_id, other_id=other_id, is_behind=ahead_of is None))


@verb("experiment", "archive", "archived experiment {experiment_id}")
def archive(home: Home, experiment_id: int) -> None:
    """Hides the experiment from lists. Raises `ExperimentError` for a submitted one that has not ended."""
    search = home.experiment(experiment_id).read().own_search
    if search is not None and not search.has_ended:
        raise ExperimentError.of(experiment_id, f"is {search.state}: only what has ended can be archived")
    with home.experiment(experiment_id).edit() as record:
        record.is_archived = True


@verb("experiment", "unarchive", "experiment {experiment_id} is in lists again")
def unarchive(home: Home, experiment_id: int) -> None:
    """Shows the experiment in lists again."""
    with home.experiment(experiment_id).edit() as record:
        record.is_archived = False


@verb("experiment", "change", "changed experiment {experiment_id}")
def describe(
    home: Home,
    experiment_id: int,
    *,
    name: str | None = None,
    description: str | None = None,
    notes: str | None = None,
    notes_before: str | None = None,
) -> None:
    """Changes the name, the description or the notes of the experiment. What is None is left unchanged.

    A script that later begins a trial under the old name makes a new experiment. Raises `NameTakenError`,
    `InvalidNameError`, `TypeError`, or `TextChangedError` if the notes are no longer `notes_before`.
    """
    experiment = home.experiment(experiment_id)
    for what, text in (("the description", description), ("the notes", notes)):
        if text is not None:
            checked_text(what, text)
    if name is not None:
        experiment.rename(name)
    with experiment.edit() as record:
        check_unchanged("the notes", record.notes, notes_before)
        record.description = record.description if description is None else description
        record.notes = record.notes if notes is None else notes


@verb("experiment", "label", "changed the labels of experiment {experiment_id}")
def label(home: Home, experiment_id: int, *, add: Collection[str] = (), remove: Collection[str] = ()) -> None:
    """Gives the experiment labels, and takes others away. Raises `InvalidNameError` or `TypeError`."""
    experiment = home.experiment(experiment_id)
    added, removed = checked_labels(add), checked_labels(remove)
    with experiment.edit() as record:
        record.labels = [label for label in dict.fromkeys((*record.labels, *added)) if label not in removed]


@changing("experiment")
def set_labels(home: Home, experiment_id: int, labels: Iterable[str]) -> None:
    """Replaces all labels. Raises `InvalidNameError` or `TypeError`."""
    experiment = home.experiment(experiment_id)
    checked = checked_labels(labels)
    with experiment.edit() as record:
        record.labels = checked


@verb("experiment", "delete", "deleted experiment {experiment_id}")
def delete(home: Home, experiment_id: int, *, force: bool = False) -> None:
    """Deletes the experiment with its trials, records and checkpoints.

    Raises `ExperimentError` for one that has not ended, and the errors of `trials.delete`.
    """
    from core_sdk._home.deletion import delete_experiment  # storages, which the other verbs do not need

    with open_view(home) as view:
        trials_of = [home.folder(row.trial_id) for row in view.trials(experiment_id)]
    trials.check_no_job(trials_of, is_forced=force)
    with_reserve(home.root, lambda: delete_experiment(home, experiment_id, is_forced=force))
