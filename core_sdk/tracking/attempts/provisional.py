"""The experiment of a trial that was begun without a name, until its script has had its chance to name one.

It is the one of the script's name. Where there is none, a new one stands in, which others find by its id only: so it
can take the name that the script gives, or be taken back without a trace.
"""

from __future__ import annotations

from core_sdk.errors import ExperimentNotFoundError, RecordDamagedError
from core_sdk.records import TrialRecord
from core_sdk.tracking.home import ExperimentFolder, Home, TrialFolder


def provisional_experiment(home: Home, name: str) -> ExperimentFolder:
    return home.find_experiment(name) or home.new_experiment(name)


def settle(home: Home, trial: TrialRecord, name: str | None) -> ExperimentFolder | None:
    """Sets the trial's experiment to that of this name; None: the script has named none.

    Gives the experiment that stood in, if it did so in vain: to be taken back once the trial's record is written.
    """
    try:
        own = home.experiment(trial.experiment_id)
        own_name = own.read().name
    except (ExperimentNotFoundError, RecordDamagedError):  # somebody has deleted it, or it cannot be read
        if name is not None:
            trial.experiment_id = home.find_or_create_experiment(name).experiment_id
        return None
    if own.is_registered:
        if name not in (None, own_name):
            trial.experiment_id = _labelled(home.find_or_create_experiment(name), trial)
        return None
    if _takes_name(home, own, name or own_name):
        return None
    trial.experiment_id = _labelled(home.find_or_create_experiment(name or own_name), trial)
    return own


def settle_unnamed(folder: TrialFolder) -> None:
    """For a script that has ended: if it has not called `init()`, nobody names its experiment any more."""
    trial = folder.read_record()
    if trial.is_defined or trial.is_named:
        return
    if (left := settle(Home(folder.home_root), trial, None)) is not None:
        folder.write_record(trial)
        left.discard()


def discard_provisional(home: Home, experiment_id: int) -> None:
    """For a trial that came to nothing."""
    experiment = ExperimentFolder(home.root, experiment_id)
    if experiment.record_path.exists() and not experiment.is_registered:
        experiment.discard()


def _takes_name(home: Home, own: ExperimentFolder, name: str) -> bool:
    if home.find_experiment(name) is not None:
        return False
    record = own.read()
    record.name = name
    own.write(record)
    try:
        own.register()
    except FileExistsError:  # another trial was faster
        return False
    return True


def _labelled(experiment: ExperimentFolder, trial: TrialRecord) -> int:
    if trial.labels:
        experiment.add_labels(trial.labels)
    return experiment.experiment_id
