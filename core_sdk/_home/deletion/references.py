"""Finds the references to checkpoints from the trials and models of a home."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Set

from core_sdk._ground.records import AttemptStarted, CheckpointUsed
from core_sdk._home.deletion.retention import References
from core_sdk._home.folders import ExperimentFolder, Home, TrialFolder
from core_sdk._home.journal import find_records
from core_sdk._home.registry import read_registered
from core_sdk.errors import RecordDamagedError, TrialNotFoundError

TrialsByExperiment = Mapping[int, Set[int]]


def read_references(home: Home, without: Set[int] = frozenset(), without_experiment: int | None = None) -> References:
    """Reads the references to checkpoints, like `read_trials`, from all trials except `without`."""
    _, references = read_trials(home, without=without, without_experiment=without_experiment)
    return references


def read_trials(
    home: Home,
    ended: Set[int] = frozenset(),
    without: Set[int] = frozenset(),
    without_experiment: int | None = None,
) -> tuple[TrialsByExperiment, References]:
    """Reads all trials of the home, and all references to checkpoints. Trials in `ended` do not count as running.

    A trial whose record is damaged is left out; the checkpoint with which it began is read from its first attempt.
    Raises `RecordDamagedError` if that cannot be read, or if a file of a model or of a submitted experiment is damaged,
    since it might refer to any checkpoint.
    """
    trials: defaultdict[int, set[int]] = defaultdict(set)
    sources: defaultdict[str, set[int]] = defaultdict(set)
    uses: defaultdict[str, set[int]] = defaultdict(set)
    running: dict[int, int] = {}
    damaged: dict[int, str] = {}
    # Trials that are being made are included: they have no record yet, but may have chosen their checkpoint.
    for trial_id in sorted({*home.trial_ids(include_deleted=True)} - without):
        folder = TrialFolder(home.root, trial_id)
        try:
            record = folder.read_record()
            trials[record.experiment_id].add(trial_id)
            if record.continued_from is not None:
                sources[record.continued_from].add(trial_id)
        except TrialNotFoundError:
            pass
        except RecordDamagedError as error:
            damaged[trial_id] = str(error)
            if (source := _source(folder, error)) is not None:
                sources[source].add(trial_id)
        try:
            attempt = None if trial_id in ended else folder.running_attempt()
        except PermissionError as error:
            raise RecordDamagedError.forbidden(folder.path, error) from error
        if attempt is None:
            continue
        running[trial_id] = attempt
        for storage_id in _used(folder, attempt):
            uses[storage_id].add(trial_id)
    beginnings = _beginnings(home, without_experiment)
    return trials, References(sources, beginnings, uses, running, read_registered(home), damaged)


def _beginnings(home: Home, without: int | None) -> Mapping[str, Set[int]]:
    beginnings: defaultdict[str, set[int]] = defaultdict(set)
    for experiment_id in home.experiment_ids(include_unfinished=True):
        if experiment_id != without:
            for storage_id in ExperimentFolder(home.root, experiment_id).read_beginnings():
                beginnings[storage_id].add(experiment_id)
    return beginnings


def _source(folder: TrialFolder, damage: RecordDamagedError) -> str | None:
    """Returns the checkpoint with which the first attempt of a trial began. Raises `damage` if that is unknown, too."""
    records = find_records(folder.journal_path(1), ('"attempt"',))
    started = next((record for record in records if isinstance(record, AttemptStarted)), None)
    if started is None:
        raise damage
    return started.latest_checkpoint


def _used(folder: TrialFolder, attempt: int) -> Iterator[str]:
    """Yields the checkpoints that a running attempt uses. Raises `RecordDamagedError` if they are not known."""
    damage: RecordDamagedError | None = None
    try:
        info = folder.read_run_info(attempt)
        if info is not None and info.latest_checkpoint is not None:
            yield info.latest_checkpoint  # the script may not have called init() yet
    except RecordDamagedError as error:
        damage = error
    for record in find_records(folder.journal_path(attempt), ('"attempt"', '"checkpoint_used"')):
        if isinstance(record, AttemptStarted):
            damage = None  # the script has called init(), so the journal names its checkpoint
        if isinstance(record, AttemptStarted) and record.latest_checkpoint is not None:
            yield record.latest_checkpoint
        elif isinstance(record, CheckpointUsed):
            yield record.storage_id
    if damage is not None:
        raise damage
