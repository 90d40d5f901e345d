"""Every public name of the predecessor's is here, or stands in the table of differences of the guide for moving."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import core_sdk as det
from core_sdk import client
from core_sdk.experimental import core_v2

GUIDE = Path(__file__).resolve().parent.parent / "docs" / "moving-from-determined.md"

# The public names of determined 0.38.1: owner -> names. What the owner of deprecated names is called is said last.
NAMES = {
    "det": "ClusterInfo ExperimentConfig InvalidHP LOG_FORMAT RendezvousInfo ResourcesInfo TrialInfo __version__ core "
    "errors experimental get_cluster_info import_from_path util keras pytorch transformers layers lightning",
    "det.core": "CheckpointContext Context DistributedContext DownloadMode DummyCheckpointContext "
    "DummyDistributedContext DummyExperimentalCoreContext DummyPreemptContext DummyProfilerContext "
    "DummySearcherContext DummySearcherOperation DummyTrainContext EarlyExitReason ExperimentalCoreContext "
    "PreemptContext PreemptMode ProfilerContext SearcherContext SearcherContextMissing SearcherMode SearcherOperation "
    "TensorboardMode TrainContext Unit init",
    "det.core.CheckpointContext": "delete download get_metadata restore_path store_path upload",
    "det.core.Context": "alert close start",
    "det.core.DistributedContext": "allgather allgather_local broadcast broadcast_local close from_deepspeed "
    "from_horovod from_tf_config from_torch_distributed gather gather_local get_local_rank get_num_agents get_rank "
    "get_size",
    "det.core.DownloadMode": "LocalWorkersShareDownload NoSharedDownload",
    "det.core.EarlyExitReason": "INVALID_HP USER_REQUESTED_STOP",
    "det.core.ExperimentalCoreContext": "report_task_using_checkpoint report_task_using_model_version",
    "det.core.PreemptContext": "acknowledge_preemption_signal close should_preempt start",
    "det.core.PreemptMode": "WorkersAskChief ChiefOnly WorkersAskMaster",
    "det.core.ProfilerContext": "off on",
    "det.core.SearcherContext": "acknowledge_out_of_ops get_configured_units operations",
    "det.core.SearcherMode": "WorkersAskChief ChiefOnly",
    "det.core.SearcherOperation": "length report_completed report_progress",
    "det.core.TensorboardMode": "AUTO MANUAL",
    "det.core.TrainContext": "get_experiment_best_validation get_metadata get_tensorboard_path report_early_exit "
    "report_metrics report_progress report_training_metrics report_validation_metrics set_metadata set_status "
    "upload_tensorboard_files",
    "det.core.Unit": "EPOCHS RECORDS BATCHES",
    "det.experimental": "Checkpoint Determined Experiment ExperimentReference Model ModelOrderBy ModelSortBy "
    "ModelVersion OrderBy Project Trial TrialOrderBy TrialReference TrialSortBy client core_v2 test_one_batch",
    "core_v2": "Config DefaultConfig DistributedContext PreemptMode TensorboardMode UnmanagedConfig checkpoint close "
    "distributed info init init_context preempt searcher train url_reverse_webui_exp_view",
    "client": "Checkpoint CheckpointOrderBy CheckpointSortBy CheckpointState Determined DownloadMode Experiment "
    "ExperimentOrderBy ExperimentSortBy ExperimentState Model ModelOrderBy ModelSortBy ModelVersion Oauth2ScimClient "
    "OrderBy Project ResourcePool TrainingMetrics Trial TrialMetrics TrialOrderBy TrialSortBy TrialState User "
    "ValidationMetrics Workspace add_oauth_client create_experiment create_model create_user create_workspace "
    "delete_workspace get_checkpoint get_experiment get_model get_model_by_id get_model_labels get_models "
    "get_session_username get_trial get_user_by_id get_user_by_name get_workspace iter_trials_metrics list_experiments "
    "list_models list_oauth_clients list_users list_workspaces login logout remove_oauth_client stream_trials_metrics "
    "stream_trials_training_metrics stream_trials_validation_metrics whoami",
    "client.CheckpointOrderBy": "ASC DESC",
    "client.CheckpointSortBy": "UUID TRIAL_ID BATCH_NUMBER END_TIME STATE SEARCHER_METRIC",
    "client.CheckpointState": "ACTIVE COMPLETED ERROR DELETED PARTIALLY_DELETED",
    "client.DownloadMode": "DIRECT MASTER AUTO",
    "client.ExperimentOrderBy": "ASCENDING DESCENDING",
    "client.ExperimentSortBy": "ID DESCRIPTION START_TIME END_TIME STATE NUM_TRIALS PROGRESS USER NAME FORKED_FROM "
    "RESOURCE_POOL PROJECT_ID CHECKPOINT_SIZE CHECKPOINT_COUNT SEARCHER_METRIC_VAL",
    "client.ExperimentState": "ACTIVE PAUSED STOPPING_COMPLETED STOPPING_CANCELED STOPPING_ERROR COMPLETED CANCELED "
    "ERROR DELETED DELETING DELETE_FAILED STOPPING_KILLED QUEUED PULLING STARTING RUNNING",
    "client.OrderBy": "ASCENDING ASC DESCENDING DESC",
    "client.TrialOrderBy": "ASCENDING ASC DESCENDING DESC",
    "client.TrialSortBy": "ID START_TIME END_TIME STATE BEST_VALIDATION_METRIC LATEST_VALIDATION_METRIC "
    "BATCHES_PROCESSED DURATION RESTARTS CHECKPOINT_SIZE LOG_RETENTION_DAYS",
    "client.TrialState": "ACTIVE PAUSED STOPPING_CANCELED STOPPING_KILLED STOPPING_COMPLETED STOPPING_ERROR CANCELED "
    "COMPLETED ERROR QUEUED PULLING STARTING RUNNING",
    "context": "checkpoint distributed experimental info preempt profiler searcher train",
    "context.distributed": "cross_rank cross_size local_rank local_size rank size",
    "context.info": "agent_id allocation_id cluster_id container_addrs container_rank container_slot_counts gpu_uuids "
    "latest_checkpoint master_cert_file master_cert_name master_url session_token slot_ids task_id task_type trial "
    "user_data",
    "context.info.trial": "experiment_id hparams trial_id trial_seed",
    "a_checkpoint": "add_metadata allocation_id delete download get_metrics get_pachyderm_commit metadata reload "
    "remove_files remove_metadata report_time resources state task_id training uuid write_metadata_file",
    "a_checkpoint.training": "experiment_config experiment_id hparams trial_id validation_metrics",
    "an_experiment": "activate add_label archive archived await_first_trial cancel config delete "
    "delete_tensorboard_files description download_code get_pachyderm_config get_trials id iter_trials kill labels "
    "list_checkpoints list_trials move_to_project name notes pause progress project_id reload remove_label "
    "set_description set_labels set_name set_notes state top_checkpoint top_n_checkpoints unarchive wait workspace_id",
    "a_trial": "experiment_id get_checkpoints get_experiment hparams id iter_logs iter_metrics kill list_checkpoints "
    "logs reload select_checkpoint state stream_metrics stream_training_metrics stream_validation_metrics "
    "summary_metrics top_checkpoint",
    "a_model": "add_metadata archive archived creation_time delete description get_version get_versions labels "
    "last_updated_time list_versions metadata model_id move_to_workspace name register_version reload remove_metadata "
    "set_description set_labels unarchive username workspace_id",
    "a_version": "checkpoint comment delete get_metrics iter_metrics metadata model_id model_name model_version name "
    "notes reload set_name set_notes",
    "a_report": "batch_metrics end_time group metrics steps_completed total_batches trial_id trial_run_id",
    "determined": "add_oauth_client create_experiment create_model create_user create_workspace delete_workspace "
    "get_checkpoint get_experiment get_model get_model_by_id get_model_labels get_models get_session_username "
    "get_trial get_user_by_id get_user_by_name get_workspace iter_trials_metrics list_experiments list_models "
    "list_oauth_clients list_users list_workspaces logout remove_oauth_client stream_trials_metrics "
    "stream_trials_training_metrics stream_trials_validation_metrics whoami",
}

# Function -> its parameters in order, each with its default where it is not None or missing.
SIGNATURES = {
    "det.core.init": "distributed checkpoint_storage preempt_mode tensorboard_mode",
    "core_v2.Config": "name hparams data description labels workspace project checkpoint_storage searcher "
    "external_experiment_id external_trial_id",
    "core_v2.init": "config defaults unmanaged client distributed checkpoint_storage preempt_mode tensorboard_mode",
    "core_v2.init_context": "config defaults unmanaged client distributed checkpoint_storage preempt_mode "
    "tensorboard_mode",
    "client.login": "master user password cert_path cert_name noverify=False",
    "client.list_experiments": "sort_by order_by experiment_ids labels users states name project_id",
    "client.create_experiment": "config model_dir includes project_id template",
    "client.create_model": "name description= metadata",
    "client.get_model": "identifier",
    "client.list_models": "sort_by=ModelSortBy.NAME order_by=OrderBy.ASCENDING name description model_id "
    "workspace_names workspace_ids",
    "client.Model.get_version": "version=-1",
    "client.Model.list_versions": "order_by=OrderBy.DESCENDING",
    "client.Model.register_version": "checkpoint_uuid",
    "client.get_experiment": "experiment_id",
    "client.iter_trials_metrics": "trial_ids group",
    "client.Checkpoint.download": "path mode=DownloadMode.AUTO",
    "client.Checkpoint.remove_files": "globs",
    "client.Experiment.iter_trials": "sort_by=TrialSortBy.ID order_by=OrderBy.ASCENDING limit",
    "client.Experiment.list_trials": "sort_by=TrialSortBy.ID order_by=OrderBy.ASCENDING",
    "client.Experiment.list_checkpoints": "sort_by order_by max_results",
    "client.Experiment.top_checkpoint": "sort_by smaller_is_better",
    "client.Experiment.top_n_checkpoints": "limit sort_by smaller_is_better",
    "client.Experiment.await_first_trial": "interval=0.1",
    "client.Experiment.wait": "interval=5.0",
    "client.Trial.iter_logs": "follow=False head tail container_ids rank_ids stdtypes min_level timestamp_before "
    "timestamp_after sources search_text",
    "client.Trial.iter_metrics": "group",
    "client.Trial.list_checkpoints": "sort_by order_by max_results",
    "client.Trial.select_checkpoint": "latest=False best=False uuid sort_by smaller_is_better",
    "client.Trial.top_checkpoint": "sort_by smaller_is_better",
}


@pytest.fixture
def owners() -> dict[str, Any]:
    """Returns the modules and an object of each kind that the names belong to."""
    with det.core.init() as context, context.checkpoint.store_path({"steps_completed": 1}) as (path, uuid):
        (path / "weights").touch()
        context.train.report_training_metrics(steps_completed=1, metrics={"loss": 0.5})
    trial, model = client.get_trial(1), client.create_model("m")
    return {
        "det": det,
        "core_v2": core_v2,
        "client": client,
        "context": context,
        "a_checkpoint": client.get_checkpoint(uuid),
        "an_experiment": client.get_experiment(1),
        "a_trial": trial,
        "a_model": model,
        "a_version": model.register_version(uuid),
        "a_report": next(trial.iter_metrics("training")),
        "determined": client.Determined(),
    }


@pytest.fixture(scope="module")
def differences() -> set[str]:
    """Returns every name in the first column of the guide's tables."""
    rows = re.findall(r"^\| (.*?) \|", GUIDE.read_text(), re.MULTILINE)
    return {name for row in rows for span in re.findall(r"`([^`]+)`", row) for name in re.findall(r"\w+", span)}


@pytest.mark.parametrize("owner", NAMES)
def test_each_name_is_here_or_stands_among_the_differences(
    owner: str, owners: dict[str, Any], differences: set[str]
) -> None:
    """Each name of the predecessor exists or is listed in the guide's differences."""
    found = look_up(owner, owners)

    missing = [name for name in NAMES[owner].split() if not hasattr(found, name) and name not in differences]

    assert missing == []


@pytest.mark.parametrize("function", SIGNATURES)
def test_each_parameter_is_here_or_stands_among_the_differences(
    function: str, owners: dict[str, Any], differences: set[str]
) -> None:
    """Each parameter of the predecessor exists in the same order or is listed in the guide."""
    given = list(parameters(look_up(function, owners)))

    expected = [name for name in SIGNATURES[function].split() if name in given or name not in differences]

    assert [parameter for parameter in given if parameter in expected] == expected


def look_up(name: str, owners: dict[str, Any]) -> Any:
    first, *rest = name.split(".")
    found = owners[first]
    for attribute in rest:
        found = getattr(found, attribute)
    return found


def parameters(function: Any) -> Iterator[str]:
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "self":
            continue
        default = parameter.default
        is_said = default not in (None, inspect.Parameter.empty) and name not in ("preempt_mode", "tensorboard_mode")
        yield f"{name}={default}" if is_said else name
