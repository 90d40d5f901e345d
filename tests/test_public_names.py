"""A script that was written for `import determined as det` finds its names here, with their signatures."""

from __future__ import annotations

import inspect

import pytest

import core_sdk as det


def test_the_front_door() -> None:
    """The package itself exports what scripts take from it."""
    assert det.LOG_FORMAT == "%(levelname)s: [%(process)s] %(name)s: %(message)s"
    assert det.get_cluster_info() is None
    assert issubclass(det.InvalidHP, Exception)
    assert callable(det.import_from_path)
    assert callable(det.core.init)
    with pytest.raises(AttributeError, match="nonsense"):
        det.nonsense  # noqa: B018


@pytest.mark.parametrize(
    "name",
    [
        "init", "Context", "DistributedContext", "CheckpointContext", "DownloadMode", "TrainContext", "EarlyExitReason",
        "SearcherContext", "SearcherOperation", "SearcherMode", "Unit", "PreemptContext", "PreemptMode",
        "ProfilerContext", "ExperimentalCoreContext", "TensorboardMode",
    ],
)  # fmt: skip
def test_core_exports(name: str) -> None:
    """All classes of the Core API that are not its stand-ins for a missing cluster."""
    assert hasattr(det.core, name)
    assert name in det.core.__all__


@pytest.mark.parametrize(
    ("owner", "method", "expected"),
    [
        ("TrainContext", "set_status", ["status"]),
        ("TrainContext", "set_metadata", ["metadata"]),
        ("TrainContext", "get_metadata", []),
        ("TrainContext", "report_training_metrics", ["steps_completed", "metrics", "batch_metrics", "checkpoint"]),
        ("TrainContext", "report_validation_metrics", ["steps_completed", "metrics", "checkpoint"]),
        ("TrainContext", "report_metrics", ["group", "steps_completed", "metrics", "checkpoint"]),
        ("TrainContext", "get_tensorboard_path", []),
        ("TrainContext", "upload_tensorboard_files", ["selector", "mangler"]),
        ("TrainContext", "report_early_exit", ["reason"]),
        ("TrainContext", "report_progress", ["progress"]),
        ("TrainContext", "get_experiment_best_validation", []),
        ("CheckpointContext", "upload", ["ckpt_dir", "metadata", "shard", "selector", "wait"]),
        ("CheckpointContext", "download", ["storage_id", "ckpt_dir", "download_mode", "selector"]),
        ("CheckpointContext", "get_metadata", ["storage_id"]),
        ("CheckpointContext", "store_path", ["metadata", "shard", "wait", "write_later"]),
        ("CheckpointContext", "restore_path", ["storage_id", "download_mode", "selector"]),
        ("CheckpointContext", "delete", ["storage_id", "globs"]),
        ("PreemptContext", "should_preempt", ["auto_ack"]),
        ("PreemptContext", "acknowledge_preemption_signal", []),
        ("SearcherContext", "operations", ["searcher_mode", "auto_ack"]),
        ("SearcherContext", "acknowledge_out_of_ops", []),
        ("SearcherContext", "get_configured_units", []),
        ("SearcherOperation", "report_progress", ["length"]),
        ("SearcherOperation", "report_completed", ["searcher_metric"]),
        ("ProfilerContext", "on", ["sampling_interval", "samples_per_report"]),
        ("ProfilerContext", "off", []),
        ("Context", "alert", ["title", "description", "level"]),
        ("Context", "start", []),
        ("Context", "close", ["exc_type", "exc_val", "exc_tb"]),
        ("DistributedContext", "gather", ["stuff"]),
        ("DistributedContext", "broadcast_local", ["stuff"]),
        ("DistributedContext", "from_torch_distributed", ["chief_ip", "timeout_s", "join_timeout_s"]),
    ],
)
def test_signatures(owner: str, method: str, expected: list[str]) -> None:
    """Methods have the predecessor's parameters first and in the same order; further ones may be left out."""
    found = inspect.signature(getattr(getattr(det.core, owner), method)).parameters

    assert [name for name in found if name != "self"][: len(expected)] == expected
    assert all(found[name].default is not inspect.Parameter.empty for name in found.keys() - {"self", *expected})


def test_init_takes_what_it_took_and_more() -> None:
    """init() has the predecessor's arguments first, and all are keyword-only."""
    signature = inspect.signature(det.core.init)

    assert list(signature.parameters)[:4] == ["distributed", "checkpoint_storage", "preempt_mode", "tensorboard_mode"]
    assert {parameter.kind for parameter in signature.parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert signature.parameters["preempt_mode"].default is det.core.PreemptMode.WorkersAskChief
    assert signature.parameters["tensorboard_mode"].default is det.core.TensorboardMode.AUTO


@pytest.mark.parametrize(
    ("enumeration", "values"),
    [
        ("PreemptMode", {"WORKERS_ASK_CHIEF", "CHIEF_ONLY", "WORKERS_ASK_MASTER"}),
        ("DownloadMode", {"LOCAL_WORKERS_SHARE_DOWNLOAD", "NO_SHARED_DOWNLOAD"}),
        ("TensorboardMode", {"AUTO", "MANUAL"}),
        ("EarlyExitReason", {"EXITED_REASON_INVALID_HP", "EXITED_REASON_USER_REQUESTED_STOP"}),
    ],
)
def test_enum_values(enumeration: str, values: set[str]) -> None:
    """Enumerations have the predecessor's values."""
    assert {member.value for member in getattr(det.core, enumeration)} == values


def test_invalid_hp_takes_a_message() -> None:
    """InvalidHP takes a message and nothing else."""
    with pytest.raises(TypeError):
        det.InvalidHP(3)  # type: ignore[arg-type]
