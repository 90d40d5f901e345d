"""Every public name of Ray Train's is here, or stands in the table of differences of the guide."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core_sdk import train

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "train.md"

# The public names of ray.train 2.60, without names for other frameworks than PyTorch: owner -> names.
NAMES = {
    "": "Checkpoint CheckpointConfig CheckpointConsistencyMode CheckpointUploadMode ReportedCheckpoint "
    "ReportedCheckpointStatus ScalingConfig RunConfig FailureConfig LoggingConfig DataConfig BackendConfig SyncConfig "
    "Result TrainContext UserCallback ValidationConfig ValidationFn ValidationTaskConfig PreemptionInfo "
    "TrainingFailedError WorkerGroupError ControllerError PreemptionError NCCLHangError TRAIN_DATASET_KEY report "
    "get_checkpoint get_all_reported_checkpoints get_context get_dataset_shard get_preemption_info collective torch",
    "torch": "TorchTrainer TorchConfig TorchCheckpoint get_device get_devices prepare_model prepare_data_loader "
    "enable_reproducibility accelerate prepare_optimizer backward",
    "collective": "barrier broadcast_from_rank_zero",
    "CheckpointUploadMode": "SYNC ASYNC NO_UPLOAD",
    "ReportedCheckpointStatus": "COMMITTED PENDING_VALIDATION VALIDATED VALIDATION_TIMEOUT VALIDATION_FAILED",
    "Checkpoint": "from_directory to_directory as_directory get_metadata set_metadata update_metadata",
    "TorchTrainer": "fit restore can_restore",
    "Result": "from_path get_best_checkpoint metrics checkpoint metrics_dataframe best_checkpoints",
    "TrainContext": "get_world_size get_world_rank get_local_rank get_local_world_size get_node_rank "
    "get_experiment_name get_storage get_trial_name get_trial_id get_trial_resources get_trial_dir get_metadata",
    "UserCallback": "after_report after_exception",
    "ScalingConfig": "min_workers max_workers elasticity_enabled total_resources",
}

# Function or class -> its parameters in order, each with its default where it is neither None nor missing.
SIGNATURES = {
    "report": "metrics checkpoint checkpoint_dir_name checkpoint_upload_mode=CheckpointUploadMode.SYNC "
    "delete_local_checkpoint_after_upload checkpoint_upload_fn validation=False",
    "get_all_reported_checkpoints": "consistency_mode timeout_s",
    "get_dataset_shard": "dataset_name",
    "torch.TorchTrainer": "train_loop_per_worker train_loop_config torch_config scaling_config run_config datasets "
    "dataset_config validation_config metadata resume_from_checkpoint",
    "torch.TorchConfig": "backend init_method=env timeout_s=1800",
    "torch.prepare_model": "model move_to_device=True parallel_strategy=ddp parallel_strategy_kwargs",
    "torch.prepare_data_loader": "data_loader add_dist_sampler=True move_to_device=True auto_transfer=True",
    "torch.enable_reproducibility": "seed=0",
    "ScalingConfig": "num_workers=1 use_gpu=False resources_per_worker placement_strategy=PACK "
    "accelerator_type label_selector use_tpu=False topology elastic_resize_monitor_interval_s=60.0 "
    "trainer_resources",  # Ray's first: here it is given by keyword only
    "RunConfig": "name storage_path storage_filesystem failure_config checkpoint_config sync_config verbose stop "
    "callbacks progress_reporter log_to_file worker_runtime_env logging_config",
    "FailureConfig": "max_failures=0 fail_fast controller_failure_limit=-1 max_preemption_failures=-1 "
    "relax_collectives_on_preemption=False preemption_grace_s=0.0",
    "CheckpointConfig": "num_to_keep checkpoint_score_attribute checkpoint_score_order=max checkpoint_frequency "
    "checkpoint_at_end",
    "LoggingConfig": "log_level=INFO",
    "DataConfig": "datasets_to_split=all execution_options enable_shard_locality=True",
    "PreemptionInfo": "deadline_ms preempted_node_to_ranks",
    "Checkpoint": "path filesystem",
    "Result.get_best_checkpoint": "metric mode",
    "UserCallback.after_report": "run_context metrics checkpoint",
    "UserCallback.after_exception": "run_context worker_exceptions",
}


@pytest.fixture(scope="module")
def differences() -> set[str]:
    """Every name in the first column of the guide's table."""
    rows = re.findall(r"^\| (.*?) \|", GUIDE.read_text().partition("## Moving from Ray Train")[2], re.MULTILINE)
    return {name for row in rows for span in re.findall(r"`([^`]+)`", row) for name in re.findall(r"\w+", span)}


@pytest.mark.parametrize("owner", NAMES)
def test_each_name_is_here_or_stands_among_the_differences(owner: str, differences: set[str]) -> None:
    """Each name of Ray Train exists here or is listed among the differences in the guide."""
    found = look_up(owner)

    missing = [name for name in NAMES[owner].split() if not hasattr(found, name) and name not in differences]

    assert missing == []


@pytest.mark.parametrize("function", SIGNATURES)
def test_each_parameter_is_here_or_stands_among_the_differences(function: str, differences: set[str]) -> None:
    """Each parameter of Ray Train exists here, in the same order and with the same default, or is in the guide."""
    given = list(parameters(look_up(function)))

    names = {parameter.partition("=")[0] for parameter in given}
    expected = [each for each in SIGNATURES[function].split() if is_given(each, names) or is_missing(each, differences)]

    assert [parameter for parameter in given if parameter in expected] == expected


def is_given(parameter: str, names: set[str]) -> bool:
    return parameter.partition("=")[0] in names


def is_missing(parameter: str, differences: set[str]) -> bool:
    """Returns whether no page speaks of it, either."""
    return parameter.partition("=")[0] not in differences


def look_up(name: str) -> Any:
    found: Any = train
    for attribute in filter(None, name.split(".")):
        found = getattr(found, attribute)
    return found


def parameters(function: Any) -> Iterator[str]:
    factories = {
        field.name
        for field in (dataclasses.fields(function) if dataclasses.is_dataclass(function) else ())
        if field.default_factory is not dataclasses.MISSING
    }
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "self":
            continue
        default = parameter.default
        is_said = default not in (None, (), inspect.Parameter.empty) and name not in factories
        shown = f"{default:g}" if isinstance(default, float) and name == "timeout_s" else default
        yield f"{name}={shown}" if is_said else name
