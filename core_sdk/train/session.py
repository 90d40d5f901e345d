"""The functions of `core_sdk.train` under the names of Ray's older `session`.

from core_sdk.train import session

session.report({"loss": loss}, checkpoint=checkpoint)
"""

from __future__ import annotations

from core_sdk.train._functions import get_checkpoint, get_context, get_dataset_shard, report

__all__ = [
    "get_checkpoint",
    "get_dataset_shard",
    "get_experiment_name",
    "get_local_rank",
    "get_local_world_size",
    "get_node_rank",
    "get_trial_dir",
    "get_trial_id",
    "get_trial_name",
    "get_world_rank",
    "get_world_size",
    "report",
]


def get_world_size() -> int:
    return get_context().get_world_size()


def get_world_rank() -> int:
    return get_context().get_world_rank()


def get_local_rank() -> int:
    return get_context().get_local_rank()


def get_local_world_size() -> int:
    return get_context().get_local_world_size()


def get_node_rank() -> int:
    return get_context().get_node_rank()


def get_experiment_name() -> str:
    return get_context().get_experiment_name()


def get_trial_name() -> str:
    return get_context().get_trial_name()


def get_trial_id() -> str:
    return get_context().get_trial_id()


def get_trial_dir() -> str:
    return get_context().get_trial_dir()
