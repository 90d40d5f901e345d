"""The collection of checkpoints by an attempt: `init()` records the policy, and the end applies it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping

import msgspec

from core_sdk._ground.environment import is_home_spooled
from core_sdk._ground.records import RetentionPolicy, SearcherMetric
from core_sdk._home import Home
from core_sdk._home.attempts.claiming import Attempt
from core_sdk._home.storage import Storage
from core_sdk.errors import CoreSDKError

logger = logging.getLogger("core_sdk.core")

# How long to wait for another collector; what is not deleted now is deleted the next time.
_WAIT_S = 10.0


def record_policy(attempt: Attempt, checkpoint_storage: object) -> None:
    """Records which checkpoints of the experiment to keep: all, unless `checkpoint_storage` is a mapping.

    The newest `init()` decides, and the newest one that names a metric decides about that. If it cannot be recorded, a
    warning says so, and the old policy stays.
    """
    policy = RetentionPolicy.checked(checkpoint_storage) if isinstance(checkpoint_storage, Mapping) else None
    metric = SearcherMetric.configured(attempt.info.trial.config.get("searcher"))
    if metric is None and attempt.record.best_by:
        own = SearcherMetric.named(attempt.record.best_by)
        metric = msgspec.structs.replace(own, name=own.name.removeprefix("validation."))
    try:
        experiment = Home(attempt.folder.home_root).experiment(attempt.record.experiment_id)
        found = experiment.read()
        if policy is not None:
            # For the end, and not at the end: Python forgets a KeyboardInterrupt that ends it when a module that it
            # imports then evaluates text, as dataclasses do, and exits with 1 instead of dying of SIGINT.
            import core_sdk._home.deletion.collection  # noqa: F401
        if (found.retention, found.searcher_metric) != (policy, metric or found.searcher_metric):
            with experiment.edit() as record:
                record.retention, record.searcher_metric = policy, metric or record.searcher_metric
    except (CoreSDKError, OSError) as error:
        _warn(f"which checkpoints to keep could not be recorded: {error}")


def collect_at_end(attempt: Attempt, storage: Storage) -> None:
    """Deletes what the policy of the attempt's experiment does not keep. A failure is only a warning."""
    if is_home_spooled():
        return  # only the home knows what is needed; the same is done there, once it has all records
    home, experiment_id = Home(attempt.folder.home_root), attempt.record.experiment_id
    try:
        if home.experiment(experiment_id).read().retention is None:
            return
        from core_sdk._home.deletion.collection import Request, collect  # imported by record_policy()

        request = Request(experiment_id=experiment_id, ended_trial=attempt.folder.trial_id)
        done = collect(home, request, storages=[storage], wait_s=_WAIT_S)
    except Exception as error:  # noqa: BLE001 - the training is complete and recorded: nothing here may fail it
        _warn(f"checkpoints were not collected: {error}")
        return
    for problem in done.problems:
        _warn(f"checkpoints were not collected in {problem}")
    for verdict in done.deleted:
        logger.info("deleted checkpoint %s of trial %d", verdict.storage_id, verdict.trial_id)


def _warn(message: str) -> None:
    advice = "`core-sdk checkpoint gc --dry-run` shows what is to be deleted"
    logger.warning("%s (%s)", message, advice)
    warnings.warn(f"{message} ({advice})", RuntimeWarning, stacklevel=2)
