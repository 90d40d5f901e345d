"""Deletes checkpoints, trials and experiments with everything that belongs to them. Ids are never used again."""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from core_sdk._ground.records import (
    CheckpointCondemned,
    CheckpointDeleted,
    CheckpointPinned,
    CheckpointPruned,
    CheckpointUnpinned,
    Record,
)
from core_sdk._home.checkpoints import kept_for_ever
from core_sdk._home.deletion.other_trials import OtherTrials
from core_sdk._home.deletion.references import read_references
from core_sdk._home.deletion.retention import INHERITED, References, needs, pin_reason
from core_sdk._home.folders import ExperimentFolder, Home, TrialFolder
from core_sdk._home.history import TrialHistory, read_history
from core_sdk._home.journal import find_records
from core_sdk._home.next_attempt import claimed_next_attempt
from core_sdk._home.registry import Registry
from core_sdk._home.storage import Storage, storage_from_url, without
from core_sdk.errors import (
    AttemptError,
    CheckpointError,
    CheckpointNotFoundError,
    CheckpointProtectedError,
    ExperimentError,
    ExperimentNotFoundError,
    RecordDamagedError,
    StorageError,
    TrialNotFoundError,
)

logger = logging.getLogger("core_sdk.tracking")


def delete_checkpoint(folder: TrialFolder, storage_url: str, storage_id: str, *, is_forced: bool = False) -> None:
    """Deletes the files of a trial's checkpoint, if they still exist, and records that it is deleted.

    May be called again after it failed. Raises `CheckpointProtectedError` for a checkpoint that is pinned, that another
    trial began with or a submitted experiment begins with, that may belong to another home, that a process reads, that
    a running attempt uses, or that is a version of a model; `is_forced` ignores the first four. Raises `StorageError`.
    """
    _check_unprotected(folder, storage_id, read_references(Home(folder.home_root)), is_forced)
    with (
        contextlib.closing(storage_from_url(storage_url)) as storage,
        storage.deleting(storage_id),
        _deleting(folder, [storage_id]),
    ):
        check_reachable(storage, storage_id)
        remove_checkpoint(storage, storage_id, recording(folder, is_forced=is_forced))


def release_checkpoint(folder: TrialFolder, storage: Storage, storage_id: str, others: OtherTrials) -> None:
    """Deletes a checkpoint that the running attempt of the trial itself needs no more. `others` are all other trials.

    Raises as `delete_checkpoint` does where anybody else needs it.
    """
    _check_unprotected(folder, storage_id, others.references(), is_forced=False)
    with storage.deleting(storage_id), _deleting(folder, [storage_id]):
        check_reachable(storage, storage_id)
        remove_checkpoint(storage, storage_id, recording(folder))


def is_kept_for_ever(folder: TrialFolder, storage_id: str) -> bool:
    """Returns whether `keep_every` in the policy of the trial's experiment keeps the checkpoint."""
    policy = Home(folder.home_root).experiment(folder.read_record().experiment_id).read().retention
    if policy is None or policy.keep_every is None:
        return False
    return storage_id in kept_for_ever(read_history(folder).checkpoints, policy.keep_every)


def delete_files(
    folder: TrialFolder, storage_url: str, storage_id: str, globs: Sequence[str], *, is_forced: bool = False
) -> dict[str, int]:
    """Deletes the files that `globs` match, like `Storage.delete`, and returns the sizes of the remaining files.

    If no file remains, the checkpoint is deleted. Raises the errors of `delete_checkpoint`, and the errors of
    reading the checkpoint.
    """
    _check_unprotected(folder, storage_id, read_references(Home(folder.home_root)), is_forced)
    with (
        contextlib.closing(storage_from_url(storage_url)) as storage,
        storage.deleting(storage_id),
        _deleting(folder, [storage_id]),
    ):
        return remove_files(storage, storage_id, globs, recording(folder, is_forced=is_forced))


def recording(folder: TrialFolder, *, is_forced: bool = False) -> Callable[[Record], None]:
    """Returns a function that records deletions in the trial's changes.

    Of a pin and a deletion, the one that is recorded first stands: the function raises `CheckpointProtectedError` for a
    checkpoint that was pinned, unless the deletion `is_forced`. That a deletion has begun is recorded once, so that the
    second try needs no room on a full disk.
    """

    def record(change: Record) -> None:
        if isinstance(change, CheckpointCondemned) and _is_condemned(folder, change.storage_id):
            return
        condemned = change.storage_id if isinstance(change, CheckpointCondemned) and not is_forced else None
        folder.append_change(change, None if condemned is None else lambda: _check_not_pinned(folder, condemned))

    return record


def _is_condemned(folder: TrialFolder, storage_id: str) -> bool:
    changes = find_records(folder.changes_path, ('"checkpoint_condemned"',))
    return any(isinstance(change, CheckpointCondemned) and change.storage_id == storage_id for change in changes)


def _check_not_pinned(folder: TrialFolder, storage_id: str) -> None:
    pin: CheckpointPinned | None = None
    for change in find_records(folder.changes_path, ('"checkpoint_pinned"', '"checkpoint_unpinned"')):
        if isinstance(change, CheckpointPinned | CheckpointUnpinned) and change.storage_id == storage_id:
            pin = change if isinstance(change, CheckpointPinned) else None
    if pin is not None:
        raise CheckpointProtectedError(storage_id, [pin_reason(pin.note)], can_be_forced=True)


def remove_files(
    storage: Storage,
    storage_id: str,
    globs: Sequence[str],
    record: Callable[[Record], None],
    *,
    is_inherited: bool = False,
) -> dict[str, int]:
    """Deletes the files that `globs` match, without checking what needs them, and returns the remaining files.

    The deletion is recorded with `record`. No file of an inherited checkpoint is deleted; its deletion is only
    recorded.
    """
    if isinstance(globs, str):
        raise TypeError(f"globs must be a list of patterns, not the string {globs!r}")
    before = storage.manifest(storage_id)
    if (left := without(before, globs)) is None:
        remove_checkpoint(storage, storage_id, record, is_inherited=is_inherited)
        return {}
    remaining = left.resources if is_inherited else storage.delete(storage_id, globs)
    if before.removed or remaining != before.resources:
        # The manifest says the same, so that a resume notices it even without this record.
        record(CheckpointPruned(time=time.time(), storage_id=storage_id, resources=remaining))
    return remaining


def remove_checkpoint(
    storage: Storage,
    storage_id: str,
    record: Callable[[Record], None],
    reason: str = "",
    *,
    is_inherited: bool = False,
) -> None:
    """Deletes the checkpoint without checking what needs it. An inherited checkpoint is only removed from the lists.

    At any moment the journals list only complete checkpoints, and show a deletion that has begun.
    """
    record(CheckpointCondemned(time=time.time(), storage_id=storage_id, reason=reason))
    if not is_inherited:
        with contextlib.suppress(CheckpointNotFoundError):
            storage.delete(storage_id)
    record(CheckpointDeleted(time=time.time(), storage_id=storage_id))


def delete_trial(folder: TrialFolder, *, is_forced: bool = False) -> None:
    """Deletes the trial's checkpoints and records. Its empty folder keeps the id from being used again.

    May be called again after it failed. Raises `TrialRunningError`, and the errors of `delete_checkpoint` if one of the
    trial's checkpoints is protected.
    """
    with claimed_next_attempt(folder, "delete"):
        _check_all_unprotected([folder], is_forced)
        _delete_claimed(folder, is_forced)


def delete_experiment(home: Home, experiment_id: int, *, is_forced: bool = False) -> None:
    """Deletes the experiment with all its trials, and their code unless others have the same code.

    Raises `ExperimentError` for an experiment that has not ended, and the errors of `delete_trial`. Deletes
    nothing if a trial runs or a checkpoint is protected.
    """
    experiment = home.experiment(experiment_id)
    with contextlib.suppress(RecordDamagedError):  # a damaged experiment can be deleted
        search = experiment.read().own_search
        if search is not None and not search.has_ended and not search.is_damaged:
            raise ExperimentError.of(experiment_id, f"is {search.state}: `core-sdk experiment cancel` ends it")
    trials = list(_trials_of(home, experiment_id))
    for folder in trials:
        with claimed_next_attempt(folder, "delete"):
            pass  # nothing is deleted unless all of it can be
    _check_all_unprotected(trials, is_forced, experiment_id)
    codes_of_tries = {_code_of_try(folder) for folder in trials}
    for folder in trials:
        with claimed_next_attempt(folder, "delete"):
            _delete_claimed(folder, is_forced)
    codes = {_code_of(experiment), *codes_of_tries}
    experiment.delete()
    for code in codes - {None}:
        _remove_unused_code(home, str(code))


def _remove_unused_code(home: Home, code: str) -> None:
    archive = home.code_archive(code)
    if _is_used(home, code) or not archive.exists():
        return
    # If an experiment with this code is submitted now, it finds no archive, or the second check finds it.
    aside = archive.with_suffix(".unused")
    archive.rename(aside)
    if _is_used(home, code):
        aside.rename(archive)
    else:
        aside.unlink()


def _is_used(home: Home, code: str) -> bool:
    if any(_code_of(home.experiment(experiment_id)) == code for experiment_id in home.experiment_ids()):
        return True
    return any(_code_of_try(home.folder(trial_id)) == code for trial_id in home.trial_ids())


def _code_of_try(folder: TrialFolder) -> str | None:
    try:
        code = folder.read_record().code
    except (TrialNotFoundError, RecordDamagedError):
        return None
    return None if code is None else code.sha256


def _code_of(experiment: ExperimentFolder) -> str | None:
    try:
        return experiment.read_submission().code
    except (ExperimentNotFoundError, RecordDamagedError):
        return None


def _delete_claimed(folder: TrialFolder, is_forced: bool) -> None:
    history = read_history(folder)
    for checkpoint in history.checkpoints:
        if checkpoint.is_inherited:
            logger.warning(
                "checkpoint %s stays in %s: %s", checkpoint.record.storage_id, checkpoint.record.storage, INHERITED
            )
    files = dict(_own_files(history))
    with _deleting(folder, files, is_forced):
        for storage_id, storage_url in files.items():
            with (
                contextlib.closing(storage_from_url(storage_url)) as storage,
                storage.deleting(storage_id),
                contextlib.suppress(CheckpointNotFoundError),
            ):
                storage.delete(storage_id)
        # This comes last, since the deletion can be repeated only while the trial is listed.
        folder.clear()


def _deleting(
    folder: TrialFolder, storage_ids: Collection[str], is_forced: bool = False
) -> contextlib.AbstractContextManager[None]:
    return Registry(Home(folder.home_root)).deleting(storage_ids, despite_damage=is_forced)


def _trials_of(home: Home, experiment_id: int) -> Iterator[TrialFolder]:
    for trial_id in home.trial_ids():
        folder = TrialFolder(home.root, trial_id)
        with contextlib.suppress(TrialNotFoundError):
            if folder.read_record().experiment_id == experiment_id:
                yield folder


def _own_files(history: TrialHistory) -> Iterator[tuple[str, str]]:
    """Yields storage ids and storages of the trial's checkpoints, except those that may belong to another home."""
    for checkpoint in history.checkpoints:
        if not checkpoint.is_inherited:
            yield checkpoint.record.storage_id, checkpoint.record.storage
    for unlisted in history.unlisted:
        if not unlisted.is_inherited:
            yield unlisted.storage_id, unlisted.storage


def _check_unprotected(folder: TrialFolder, storage_id: str, references: References, is_forced: bool) -> None:
    found = [found for found in read_history(folder).checkpoints if found.record.storage_id == storage_id]
    pin, is_inherited = (found[0].pin, found[0].is_inherited) if found else (None, False)
    _check_references(storage_id, pin, references, is_forced, is_inherited=is_inherited)


def _check_all_unprotected(folders: Sequence[TrialFolder], is_forced: bool, experiment_id: int | None = None) -> None:
    """Raises `CheckpointProtectedError` if a checkpoint of these trials is pinned, or needed by anything else.

    Raises `AttemptError` if a writer reports about one of the trials. `experiment_id` is the experiment that is deleted
    with them.
    """
    for folder in () if is_forced else folders:
        if writers := folder.living_writers():
            raise AttemptError(
                f"cannot delete trial {folder.trial_id}: {' and '.join(map(repr, writers))} still reports about it. "
                "End the writer first, or delete with --force: then its further reports are lost."
            )
    histories = [read_history(folder) for folder in folders]
    checkpoints = [checkpoint for history in histories for checkpoint in history.checkpoints]
    if not checkpoints:
        return
    _check_unread(itertools.chain.from_iterable(map(_own_files, histories)))
    try:
        own = {folder.trial_id for folder in folders}
        references = read_references(Home(folders[0].home_root), without=own, without_experiment=experiment_id)
    except RecordDamagedError:
        if is_forced:
            return
        raise
    for checkpoint in checkpoints:
        # The files of an inherited one stay.
        _check_references(checkpoint.record.storage_id, checkpoint.pin, references, is_forced)


def _check_unread(files: Iterable[tuple[str, str]]) -> None:
    """Raises `CheckpointProtectedError` if a process reads one of these checkpoints, which come with their storages."""
    with contextlib.ExitStack() as opened:
        storages: dict[str, Storage] = {}
        for storage_id, url in files:
            if url not in storages:
                storages[url] = opened.enter_context(contextlib.closing(storage_from_url(url)))
            with storages[url].deleting(storage_id):
                pass


def _check_references(
    storage_id: str,
    pin: CheckpointPinned | None,
    references: References,
    is_forced: bool,
    *,
    is_inherited: bool = False,
) -> None:
    is_registered = storage_id in references.models
    can_be_forced = storage_id not in references.uses and not is_registered
    reasons = needs(storage_id, references, None if pin is None else pin.note, is_inherited=is_inherited)
    if reasons and not (is_forced and can_be_forced):
        raise CheckpointProtectedError(storage_id, reasons, can_be_forced, is_registered)


def check_reachable(storage: Storage, storage_id: str) -> None:
    """Raises a `StorageError` if the storage cannot be reached."""
    try:
        storage.manifest(storage_id)
    except StorageError:
        raise
    except CheckpointError:
        pass  # missing or damaged, which is no reason to keep it
