"""What can be done to trials, experiments and checkpoints. What a master decides goes through it."""

from __future__ import annotations

import contextlib
import time
from typing import Annotated, Any

import msgspec

from core_sdk.agent.background import resume_in_background
from core_sdk.errors import ExperimentNotRunningError, ExperimentStateError, TrialNotRunningError
from core_sdk.experiments.calling import call_running
from core_sdk.experiments.killing import kill_trial
from core_sdk.records import (
    CheckpointPinned,
    CheckpointUnpinned,
    Record,
    TrialLabelsChanged,
    Wish,
    check_name,
)
from core_sdk.server.errors import RequestError
from core_sdk.server.records import Records
from core_sdk.server.route import Id
from core_sdk.server.routes.checkpoints import StorageId
from core_sdk.tracking.rows import ExperimentChange

_BY = "core-sdk ui"

Label = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Labels = Annotated[list[Label], msgspec.Meta(max_length=100)]


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of an action."""


class DeleteBody(Body, frozen=True):
    force: bool = False
    """Whether to delete also a checkpoint that is pinned, or that another trial began with."""


class LabelsBody(Body, frozen=True):
    add: Labels = []
    remove: Labels = []


class PinBody(Body, frozen=True):
    note: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    """The reason why it is kept."""


class ChangeBody(Body, frozen=True):
    """Fields that are null are left unchanged."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)] | None = None
    description: Annotated[str, msgspec.Meta(max_length=10_000)] | None = None
    notes: Annotated[str, msgspec.Meta(max_length=60_000)] | None = None


class TrialBody(Body, frozen=True):
    """Fields that are null are left unchanged."""

    name: Annotated[str, msgspec.Meta(max_length=1000)] | None = None
    """An empty name is the generated one."""
    notes: Annotated[str, msgspec.Meta(max_length=60_000)] | None = None


class SettingsBody(Body, frozen=True):
    priority: Annotated[int, msgspec.Meta(ge=1, le=99)] | None = None
    """Smaller numbers are served first."""
    max_slots: Annotated[int, msgspec.Meta(ge=-1, le=1 << 20)] | None = None
    """-1 takes the limit away."""


class Done(msgspec.Struct, frozen=True):
    message: str
    """A text that says what was done."""


def pause_trial(records: Records, trial_id: Id) -> Done:
    """Asks a running trial to save a checkpoint and stop."""
    records.tracker.request_stop(trial_id, _BY)
    return Done(f"asked trial {trial_id} to stop: it does when it next calls should_preempt()")


def kill_one_trial(records: Records, trial_id: Id) -> Done:
    """Kills a trial with all its processes, at once; it is canceled."""
    experiment_id = records.tracker.trial_record(trial_id).experiment_id
    search = records.tracker.experiment_record(experiment_id).search
    if search is not None and not search.has_ended:
        _check_master(records, experiment_id)
    kill_trial(records.tracker, trial_id, _BY)
    return Done(f"killed trial {trial_id}")


def resume_trial(records: Records, trial_id: Id) -> Done:
    """Goes on with a trial from its newest good checkpoint, in the background; its output is kept."""
    start = resume_in_background(records.tracker, trial_id)
    continuation = start.continuation
    checkpoint = None if continuation is None else continuation.checkpoint
    steps = "from its beginning" if checkpoint is None else f"from step {checkpoint.steps_completed}"
    return Done(f"resumed trial {trial_id} {steps}, as its attempt {start.number}")


def archive_trial(records: Records, trial_id: Id) -> Done:
    """Hides a trial that does not run from lists, until it is resumed."""
    records.tracker.archive_trial(trial_id)
    return Done(f"archived trial {trial_id}")


def unarchive_trial(records: Records, trial_id: Id) -> Done:
    """Shows a trial in lists again."""
    records.tracker.archive_trial(trial_id, is_archived=False)
    return Done(f"trial {trial_id} is in lists again")


def label_trial(records: Records, trial_id: Id, body: LabelsBody) -> Done:
    """Gives a trial labels, or takes them away."""
    records.tracker.trial_record(trial_id)
    added, removed = checked_labels(body.add), checked_labels(body.remove)
    records.tracker.append_change(trial_id, TrialLabelsChanged(time=time.time(), added=added, removed=removed))
    return Done(f"changed the labels of trial {trial_id}")


def change_trial(records: Records, trial_id: Id, body: TrialBody) -> Done:
    """Changes the name or the notes of a trial."""
    records.tracker.describe_trial(trial_id, name=body.name, notes=body.notes)
    return Done(f"changed trial {trial_id}")


def delete_trial(records: Records, trial_id: Id, body: DeleteBody) -> Done:
    """Deletes a trial, its records and its checkpoints."""
    records.tracker.delete_trial(trial_id, is_forced=body.force)
    return Done(f"deleted trial {trial_id}")


def pause_experiment(records: Records, experiment_id: Id) -> Done:
    """Lets the trials save their checkpoints and stop."""
    if _is_submitted(records, experiment_id):
        return _want(records, experiment_id, "PAUSED")
    for trial_id in _running_trials(records, experiment_id, "pause"):
        with contextlib.suppress(TrialNotRunningError):  # it has ended meanwhile
            records.tracker.request_stop(trial_id, _BY)
    return Done(f"asked the trials of experiment {experiment_id} to stop")


def activate_experiment(records: Records, experiment_id: Id) -> Done:
    """Lets an experiment that is paused go on."""
    if not _is_submitted(records, experiment_id):
        advice = "was not submitted: `core-sdk trial resume ID` in a terminal goes on with a trial that is paused"
        raise ExperimentStateError(experiment_id, advice)
    return _want(records, experiment_id, "ACTIVE")


def cancel_experiment(records: Records, experiment_id: Id) -> Done:
    """Ends an experiment: its trials save their checkpoints and stop."""
    if not _is_submitted(records, experiment_id):
        raise ExperimentStateError(experiment_id, "was not submitted: pausing it stops its trials")
    return _want(records, experiment_id, "CANCELED")


def kill_experiment(records: Records, experiment_id: Id) -> Done:
    """Ends an experiment at once: its trials are killed."""
    if _is_submitted(records, experiment_id):
        return _want(records, experiment_id, "KILLED")
    for trial_id in _running_trials(records, experiment_id, "kill"):
        with contextlib.suppress(TrialNotRunningError):
            records.tracker.kill(trial_id, _BY)
    return Done(f"killed the trials of experiment {experiment_id}")


def archive_experiment(records: Records, experiment_id: Id) -> Done:
    """Hides an experiment that has ended from lists."""
    records.tracker.change_experiment(experiment_id, ExperimentChange(is_archived=True))
    return Done(f"archived experiment {experiment_id}")


def unarchive_experiment(records: Records, experiment_id: Id) -> Done:
    """Shows an experiment in lists again."""
    records.tracker.change_experiment(experiment_id, ExperimentChange(is_archived=False))
    return Done(f"experiment {experiment_id} is in lists again")


def label_experiment(records: Records, experiment_id: Id, body: LabelsBody) -> Done:
    """Gives an experiment labels, or takes them away."""
    change = ExperimentChange(
        added_labels=tuple(checked_labels(body.add)), removed_labels=tuple(checked_labels(body.remove))
    )
    records.tracker.change_experiment(experiment_id, change)
    return Done(f"changed the labels of experiment {experiment_id}")


def change_experiment(records: Records, experiment_id: Id, body: ChangeBody) -> Done:
    """Changes the name, the description or the notes of an experiment."""
    change = ExperimentChange(name=body.name, description=body.description, notes=body.notes)
    records.tracker.change_experiment(experiment_id, change)
    return Done(f"changed experiment {experiment_id}")


def set_experiment(records: Records, experiment_id: Id, body: SettingsBody) -> Done:
    """Changes how an experiment gets slots."""
    settings = {"priority": body.priority, "max_slots": body.max_slots}
    _ask_master(records, "change", experiment_id, **settings)
    return Done(f"changed the settings of experiment {experiment_id}")


def delete_experiment(records: Records, experiment_id: Id, body: DeleteBody) -> Done:
    """Deletes an experiment with its trials, records and checkpoints."""
    records.tracker.delete_experiment(experiment_id, is_forced=body.force)
    return Done(f"deleted experiment {experiment_id}")


def verify_checkpoint(records: Records, storage_id: StorageId) -> Done:
    """Reads every file of a checkpoint and compares it with its checksum."""
    from core_sdk.storage import storage_from_url  # which other questions do not need

    row = records.ask(lambda view: view.checkpoint(storage_id))
    storage = storage_from_url(row.storage)
    try:
        storage.verify(storage_id)
    finally:
        storage.close()
    return Done(f"checkpoint {storage_id} is whole: every byte is as it was stored")


def pin_checkpoint(records: Records, storage_id: StorageId, body: PinBody) -> Done:
    """Protects a checkpoint from being deleted, by collection or by hand."""
    _change_checkpoint(records, storage_id, CheckpointPinned(time=time.time(), storage_id=storage_id, note=body.note))
    return Done(f"pinned checkpoint {storage_id}")


def unpin_checkpoint(records: Records, storage_id: StorageId) -> Done:
    """Takes the protection away."""
    _change_checkpoint(records, storage_id, CheckpointUnpinned(time=time.time(), storage_id=storage_id))
    return Done(f"unpinned checkpoint {storage_id}")


def delete_checkpoint(records: Records, storage_id: StorageId, body: DeleteBody) -> Done:
    """Deletes the files of a checkpoint."""
    records.tracker.delete_checkpoint(storage_id, is_forced=body.force)
    return Done(f"deleted checkpoint {storage_id}")


def checked_labels(labels: list[str]) -> list[str]:
    return [check_name("the label", label) for label in labels]


def _is_submitted(records: Records, experiment_id: int) -> bool:
    return records.tracker.experiment_record(experiment_id).is_submitted


def _want(records: Records, experiment_id: int, state: Wish) -> Done:
    found = _ask_master(records, "want", experiment_id, state=state, by=_BY)
    return Done(f"experiment {experiment_id}: {found['state']}")


def _ask_master(records: Records, do: str, experiment_id: int, **arguments: Any) -> dict[str, Any]:
    found = call_running(records.tracker.home.root, do, experiment_id=experiment_id, **arguments)
    if found is None:
        raise _no_master(experiment_id)
    return found


def _check_master(records: Records, experiment_id: int) -> None:
    if call_running(records.tracker.home.root, "status") is None:
        raise _no_master(experiment_id)


def _no_master(experiment_id: int) -> RequestError:
    message = f"no master runs, and without one nothing decides about experiment {experiment_id}"
    return RequestError(409, "no_master", message, "`core-sdk master up` in a terminal starts one.")


def _running_trials(records: Records, experiment_id: int, action: str) -> list[int]:
    trials = records.snapshot().trials_of(experiment_id)
    running = [one.row.trial_id for one in trials if one.row.state == "ACTIVE"]
    if not running:
        raise ExperimentNotRunningError(experiment_id, action)
    return running


def _change_checkpoint(records: Records, storage_id: str, change: Record) -> None:
    row = records.ask(lambda view: view.checkpoint(storage_id))
    records.tracker.append_change(row.trial_id, change)
