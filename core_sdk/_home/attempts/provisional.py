"""The experiment of a trial that was begun without a name: it is provisional until the script's `init()` may name one.

It is the experiment of the script's name. Where there is none, a new one is made that is found by its id only. It later
takes the name that the script gives, or is removed without a trace.
"""

from __future__ import annotations

from core_sdk._ground.records import TrialRecord
from core_sdk._home.folders import ExperimentFolder, Home, TrialFolder
from core_sdk.errors import ExperimentNotFoundError, RecordDamagedError


def provisional_experiment(home: Home, name: str) -> ExperimentFolder:
    return home.find_experiment(name) or home.new_experiment(name)


def settle(home: Home, trial: TrialRecord, name: str | None) -> ExperimentFolder | None:
    """Sets the trial's experiment to the one of this name; None means that the script has named none.

    Does not write the trial's record. If this returns an experiment, it was provisional and is not needed any more:
    discard it once the record is written.
    """
    try:
        own = home.experiment(trial.experiment_id)
        own_name = own.read().name
    except (ExperimentNotFoundError, RecordDamagedError):  # somebody has deleted it, or it cannot be read
        if name is not None:
            trial.experiment_id = home.find_or_create_experiment(name).experiment_id
        return None
    is_provisional = not own.is_registered
    name = name or own_name
    if (name == own_name and not is_provisional) or (is_provisional and _takes_name(home, own, name)):
        return None
    experiment = home.find_or_create_experiment(name)
    if trial.labels:
        experiment.add_labels(trial.labels)
    trial.experiment_id = experiment.experiment_id
    return own if is_provisional else None


def settle_unnamed(folder: TrialFolder) -> None:
    """Settles the experiment of a trial whose script has ended without calling `init()`, and so named none."""
    trial = folder.read_record()
    if trial.is_defined or trial.is_named:
        return
    if (replaced := settle(Home(folder.home_root), trial, None)) is not None:
        folder.write_record(trial)
        replaced.discard()


def discard_provisional(home: Home, experiment_id: int) -> None:
    """Removes an experiment that is still provisional, because its trial could not be started."""
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
