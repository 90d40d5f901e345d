"""Deletes what a user names, or (`collection`) the checkpoints that a policy does not keep."""

from core_sdk._home.deletion._by_hand import (
    delete_checkpoint,
    delete_experiment,
    delete_files,
    delete_trial,
    is_kept_for_ever,
    release_checkpoint,
    remove_checkpoint,
    remove_files,
)
from core_sdk._home.deletion.other_trials import OtherTrials
