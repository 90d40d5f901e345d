"""What can be done to trials, experiments and checkpoints. What a master decides goes through it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from core_sdk._execution.steering import checkpoints, experiments, trials
from core_sdk._interfaces.server.route import Id
from core_sdk._interfaces.server.routes.checkpoints import StorageId
from core_sdk._interfaces.server.shared_view import SharedView

_BY = "core-sdk ui"

Labels = Annotated[list[str], msgspec.Meta(max_length=100)]


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of an action."""


class DeleteBody(Body, frozen=True):
    force: bool = False
    """Whether to delete also a checkpoint that is pinned, or that another trial began with."""


class LabelsBody(Body, frozen=True):
    add: Labels = []
    remove: Labels = []


class PinBody(Body, frozen=True):
    note: str = ""
    """The reason why it is kept."""


class ChangeBody(Body, frozen=True):
    """Fields that are null are left unchanged."""

    name: str | None = None
    description: str | None = None
    notes: str | None = None


class TrialBody(Body, frozen=True):
    """Fields that are null are left unchanged."""

    name: str | None = None
    """An empty name is the generated one."""
    notes: str | None = None
    verdict: str | None = None
    """keep or discard; empty to take it back."""
    verdict_reason: str | None = None


class SettingsBody(Body, frozen=True):
    priority: Annotated[int, msgspec.Meta(ge=1, le=99)] | None = None
    """Smaller numbers are served first."""
    max_slots: Annotated[int, msgspec.Meta(ge=-1, le=1 << 20)] | None = None
    """-1 takes the limit away."""


class Done(msgspec.Struct, frozen=True):
    message: str
    """A text that says what was done."""


def pause_trial(shared: SharedView, trial_id: Id) -> Done:
    """Asks a running trial to save a checkpoint and stop."""
    trials.pause(shared.home, trial_id, _BY)
    return Done(f"asked trial {trial_id} to stop: it does when it next calls should_preempt()")


def kill_one_trial(shared: SharedView, trial_id: Id) -> Done:
    """Kills a trial with all its processes, at once; it is canceled."""
    trials.kill(shared.home, trial_id, _BY)
    return Done(f"killed trial {trial_id}")


def resume_trial(shared: SharedView, trial_id: Id) -> Done:
    """Goes on with a trial from its newest good checkpoint, in the background; its output is kept."""
    start = trials.resume(shared.home, trial_id)
    continuation = start.continuation
    checkpoint = None if continuation is None else continuation.checkpoint
    steps = "from its beginning" if checkpoint is None else f"from step {checkpoint.steps_completed}"
    return Done(f"resumed trial {trial_id} {steps}, as its attempt {start.number}")


def archive_trial(shared: SharedView, trial_id: Id) -> Done:
    """Hides a trial that does not run from lists, until it is resumed."""
    trials.archive(shared.home, trial_id)
    return Done(f"archived trial {trial_id}")


def unarchive_trial(shared: SharedView, trial_id: Id) -> Done:
    """Shows a trial in lists again."""
    trials.unarchive(shared.home, trial_id)
    return Done(f"trial {trial_id} is in lists again")


def label_trial(shared: SharedView, trial_id: Id, body: LabelsBody) -> Done:
    """Gives a trial labels, or takes them away."""
    trials.label(shared.home, trial_id, add=body.add, remove=body.remove)
    return Done(f"changed the labels of trial {trial_id}")


def change_trial(shared: SharedView, trial_id: Id, body: TrialBody) -> Done:
    """Changes the name, the notes or the verdict of a trial."""
    told = {"verdict": body.verdict, "verdict_reason": body.verdict_reason}
    trials.describe(shared.home, trial_id, name=body.name, notes=body.notes, **told)
    return Done(f"changed trial {trial_id}")


def delete_trial(shared: SharedView, trial_id: Id, body: DeleteBody) -> Done:
    """Deletes a trial, its records and its checkpoints."""
    trials.delete(shared.home, trial_id, is_forced=body.force)
    return Done(f"deleted trial {trial_id}")


def pause_experiment(records: SharedView, experiment_id: Id) -> Done:
    """Lets the trials save their checkpoints and stop."""
    done = experiments.pause(records.home, experiment_id, _BY)
    return _steered(experiment_id, done, "asked to stop")


def activate_experiment(records: SharedView, experiment_id: Id) -> Done:
    """Lets an experiment that is paused go on."""
    return _steered(experiment_id, experiments.activate(records.home, experiment_id, _BY))


def cancel_experiment(records: SharedView, experiment_id: Id) -> Done:
    """Ends an experiment: its trials save their checkpoints and stop."""
    return _steered(experiment_id, experiments.cancel(records.home, experiment_id, _BY))


def kill_experiment(records: SharedView, experiment_id: Id) -> Done:
    """Ends an experiment at once: its trials are killed."""
    return _steered(experiment_id, experiments.kill(records.home, experiment_id, _BY), "killed")


def archive_experiment(shared: SharedView, experiment_id: Id) -> Done:
    """Hides an experiment that has ended from lists."""
    experiments.archive(shared.home, experiment_id)
    return Done(f"archived experiment {experiment_id}")


def unarchive_experiment(shared: SharedView, experiment_id: Id) -> Done:
    """Shows an experiment in lists again."""
    experiments.unarchive(shared.home, experiment_id)
    return Done(f"experiment {experiment_id} is in lists again")


def label_experiment(shared: SharedView, experiment_id: Id, body: LabelsBody) -> Done:
    """Gives an experiment labels, or takes them away."""
    experiments.label(shared.home, experiment_id, add=body.add, remove=body.remove)
    return Done(f"changed the labels of experiment {experiment_id}")


def change_experiment(shared: SharedView, experiment_id: Id, body: ChangeBody) -> Done:
    """Changes the name, the description or the notes of an experiment."""
    texts = {"name": body.name, "description": body.description, "notes": body.notes}
    experiments.describe(shared.home, experiment_id, **texts)
    return Done(f"changed experiment {experiment_id}")


def set_experiment(shared: SharedView, experiment_id: Id, body: SettingsBody) -> Done:
    """Changes how an experiment gets slots."""
    experiments.set_slots(shared.home, experiment_id, priority=body.priority, max_slots=body.max_slots)
    return Done(f"changed the settings of experiment {experiment_id}")


def delete_experiment(shared: SharedView, experiment_id: Id, body: DeleteBody) -> Done:
    """Deletes an experiment with its trials, records and checkpoints."""
    experiments.delete(shared.home, experiment_id, is_forced=body.force)
    return Done(f"deleted experiment {experiment_id}")


def verify_checkpoint(shared: SharedView, storage_id: StorageId) -> Done:
    """Reads every file of a checkpoint and compares it with its checksum."""
    checkpoints.verify(shared.home, storage_id)
    return Done(f"checkpoint {storage_id} is whole: every byte is as it was stored")


def pin_checkpoint(shared: SharedView, storage_id: StorageId, body: PinBody) -> Done:
    """Protects a checkpoint from being deleted, by collection or by hand."""
    checkpoints.pin(shared.home, storage_id, body.note)
    return Done(f"pinned checkpoint {storage_id}")


def unpin_checkpoint(shared: SharedView, storage_id: StorageId) -> Done:
    """Takes the protection away."""
    checkpoints.unpin(shared.home, storage_id)
    return Done(f"unpinned checkpoint {storage_id}")


def delete_checkpoint(shared: SharedView, storage_id: StorageId, body: DeleteBody) -> Done:
    """Deletes the files of a checkpoint."""
    checkpoints.delete(shared.home, storage_id, is_forced=body.force)
    return Done(f"deleted checkpoint {storage_id}")


def _steered(experiment_id: int, done: experiments.Steered, of_trials: str = "") -> Done:
    """Returns what to say: what was done to the trials, if no master steers them, or the experiment's new state."""
    if done.trial_ids:
        return Done(f"experiment {experiment_id}: its {len(done.trial_ids)} running trials were {of_trials}")
    return Done(f"experiment {experiment_id}: {done.state}")
