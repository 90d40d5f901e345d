"""Builds the run info of an attempt from the trial's record and the place where the attempt runs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

import msgspec

from core_sdk._ground.records import PLACED, ClusterInfo, TrialInfo, TrialRecord, from_json, to_json

if TYPE_CHECKING:  # slow to import, and a training needs no more of it than the type's name
    from core_sdk._machine.slots import Slots


def names_trial(info: ClusterInfo | None) -> TypeGuard[ClusterInfo]:
    """Returns whether `info` names a trial, so that the script does not begin its own."""
    return info is not None and info.task_type == "TRIAL"


def is_restart(info: ClusterInfo | None, trial_id: int, attempt: int) -> bool:
    """Returns whether this attempt of the trial follows the one for which a launcher was given `info`."""
    return names_trial(info) and info.trial.trial_id == trial_id and info.trial.attempt != attempt


def place_in(info: ClusterInfo) -> ClusterInfo:
    """Returns `info` without the trial that it names: for another trial that begins at the same place."""
    return msgspec.structs.replace(info, task_type=PLACED, latest_checkpoint=None, trial_or_none=None)


def started_info(
    trial: TrialRecord,
    attempt: int,
    latest_checkpoint: str | None,
    steps_completed: int,
    config: Mapping[str, Any],
    slots: Slots | None = None,
    launched: float | None = None,
) -> ClusterInfo:
    """Returns the run info of an attempt that is started with a command on this machine, at the time `launched`.

    Without `slots`, the trial's slots are numbered from 0.
    """
    slot_ids = [*range(trial.num_slots or 0)] if slots is None else list(slots.ids)
    here = ClusterInfo(
        task_id=f"trial-{trial.trial_id}",
        allocation_id=f"trial-{trial.trial_id}.{attempt}",
        named_slot_ids=slot_ids,
        container_slot_counts=[len(slot_ids) or 1],
        gpu_uuids=[name for name in (slots.gpus if slots else ()) if not name.isdecimal()],
    )
    told = with_trial(here, trial, attempt, latest_checkpoint, steps_completed)
    told.trial.config = dict(config)
    told.asked, told.launched = slots.asked if slots else None, launched
    return told


def with_trial(
    where: ClusterInfo, trial: TrialRecord, attempt: int, latest_checkpoint: str | None, steps_completed: int
) -> ClusterInfo:
    """Returns `where`, as a script sees it, with the trial and its attempt added, as a run info file has it."""
    return msgspec.structs.replace(
        where,
        task_type="TRIAL",
        latest_checkpoint=latest_checkpoint,
        trial_or_none=TrialInfo(
            trial_id=trial.trial_id,
            experiment_id=trial.experiment_id,
            trial_seed=trial.seed,
            hparams=trial.told_hparams,
            config=to_json(where.trial_or_none.config, "config") if where.trial_or_none else {},
            steps_completed=steps_completed,
            keep=trial.keep if latest_checkpoint == trial.continued_from else None,
            attempt=attempt,
            setback=where.trial_or_none.setback if where.trial_or_none else None,
        ),
        user_data=trial.data,
        asked=None,
        launched=None,
    )


def as_told(info: ClusterInfo) -> ClusterInfo:
    """Returns the `info` of a file as a script sees it, with the values that JSON lacks (NaN, the infinities)."""
    trial = msgspec.structs.replace(
        info.trial, hparams=from_json(info.trial.hparams), config=from_json(info.trial.config)
    )
    return msgspec.structs.replace(info, trial_or_none=trial, user_data=from_json(info.user_data))
