"""Every key of a configuration for Determined, 0.38.1 and older, is kept, ignored with a warning, or refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml
from ground.config.configurations import SINGLE, loaded, problems_of, warnings_of

from core_sdk._ground.config import load, to_mapping
from core_sdk._ground.config.experiment import ExperimentConfig
from core_sdk._ground.config.lengths import Length, Period

KEPT = {
    "name: mnist": "mnist",
    "description: free text": "free text",
    "labels: [a, b]": ["a", "b"],
    "data: {url: s3, secrets: {key: 3}}": {"url": "s3", "secrets": {"key": 3}},
    "max_restarts: 0": 0,
    "checkpoint_policy: all": "all",
    "perform_initial_validation: true": True,
    "preemption_timeout: 60": 60,
    "debug: true": True,
    "profiling: {enabled: true}": {"enabled": True},
    "optimizations: {aggregation_frequency: 2, gradient_compression: true}": {
        "aggregation_frequency": 2, "average_aggregated_gradients": True, "gradient_compression": True,
    },
    "reproducibility: {experiment_seed: 2147483647}": {"experiment_seed": 2**31 - 1},
    "resources: {slots_per_trial: 0, max_slots: 8, priority: 1, is_single_node: true}": {
        "slots_per_trial": 0, "max_slots": 8, "priority": 1, "engine": "local", "address": "", "is_single_node": True,
    },
    "resources: {priority: null}": {
        "slots_per_trial": 1, "priority": 42, "engine": "local", "address": "", "is_single_node": False,
    },
    "environment: {environment_variables: [A=1, B=x=y]}": {"environment_variables": ["A=1", "B=x=y"]},
    "environment: {environment_variables: {cpu: [A=1], cuda: [B=1], rocm: []}}": {
        "environment_variables": {"cpu": ["A=1"], "cuda": ["B=1"], "rocm": []},
    },
    "environment: {environment_variables: {gpu: [B=1]}}": {
        "environment_variables": {"cpu": [], "cuda": ["B=1"], "rocm": []},
    },
    "checkpoint_storage: {type: directory, container_path: /c, save_trial_best: 2}": {
        "type": "directory", "container_path": "/c", "save_trial_best": 2,
    },
    "checkpoint_storage: {type: shared_fs, host_path: /c, storage_path: d, save_experiment_best: 1}": {
        "type": "shared_fs", "host_path": "/c", "storage_path": "d", "save_experiment_best": 1,
    },
    "checkpoint_storage: {type: s3, bucket: b, prefix: p, endpoint_url: null}": {
        "type": "s3", "bucket": "b", "prefix": "p",
    },
    "checkpoint_storage: {type: gcs, bucket: b}": {"type": "gcs", "bucket": "b"},
    "checkpoint_storage: {type: azure, container: c, account_url: u}": {
        "type": "azure", "container": "c", "account_url": "u",
    },
    "checkpoint_storage: {save_trial_latest: 0}": {"save_trial_latest": 0},
    "checkpoint_storage: {keep_every: {hours: 1.5}}": {"keep_every": {"hours": 1.5}},
    "checkpoint_storage: s3://bucket/prefix": "s3://bucket/prefix",
    "entrypoint: python3 train.py": "python3 train.py",
    "entrypoint: [python3, train.py]": ["python3", "train.py"],
    "searcher: {name: single, metric: loss, smaller_is_better: false, source_trial_id: 3}": {
        "name": "single", "metric": "loss", "smaller_is_better": False, "source_trial_id": 3,
    },
    "searcher: {name: single, metric: loss, max_length: 20, source_checkpoint_uuid: a}": {
        "name": "single", "metric": "loss", "smaller_is_better": True, "max_length": 20, "source_checkpoint_uuid": "a",
    },
    "searcher: {name: random, metric: loss, max_trials: 3, max_length: {records: 20}, max_concurrent_trials: 0}": {
        "name": "random", "metric": "loss", "smaller_is_better": True, "max_trials": 3, "max_length": {"records": 20},
        "max_concurrent_trials": 0,
    },
    "searcher: {name: grid, metric: loss, max_length: {batches: 20}}": {
        "name": "grid", "metric": "loss", "smaller_is_better": True, "max_concurrent_trials": 16,
        "max_length": {"batches": 20}, "max_points": 10_000,
    },
    "searcher: {name: async_halving, metric: loss, num_rungs: 3, max_trials: 9, time_metric: epochs, max_time: 9}": {
        "name": "async_halving", "metric": "loss", "smaller_is_better": True, "max_concurrent_trials": 16,
        "num_rungs": 3, "max_trials": 9, "divisor": 4.0, "time_metric": "epochs", "max_time": 9, "stop_once": False,
        "sampler": "random",
    },
    "searcher: {name: adaptive_asha, metric: loss, max_trials: 9, max_length: {epochs: 9}, stop_once: true,"
    " mode: aggressive, max_rungs: 3, divisor: 3, bracket_rungs: [3, 2]}": {
        "name": "adaptive_asha", "metric": "loss", "smaller_is_better": True, "max_concurrent_trials": 16,
        "max_trials": 9, "divisor": 3.0, "max_length": {"epochs": 9}, "stop_once": True,
        "sampler": "random", "mode": "aggressive",
        "max_rungs": 3, "bracket_rungs": [3, 2],
    },
    "searcher: {name: custom, metric: loss, unit: epochs}": {
        "name": "custom", "metric": "loss", "smaller_is_better": True, "unit": "epochs",
    },
}  # fmt: skip

IGNORED = {
    "records_per_epoch: 60000": ["records_per_epoch"],
    "bind_mounts: [{host_path: /a, container_path: /b}]": ["bind_mounts"],
    "optimizations: {average_training_metrics: true, mixed_precision: O1, grad_updates_size_file: a}": [
        "optimizations.average_training_metrics",
        "optimizations.mixed_precision",
        "optimizations.grad_updates_size_file",
    ],
    "optimizations: {tensor_fusion_threshold: 64, tensor_fusion_cycle_time: 1, auto_tune_tensor_fusion: false}": [
        "optimizations.tensor_fusion_threshold",
        "optimizations.tensor_fusion_cycle_time",
        "optimizations.auto_tune_tensor_fusion",
    ],
    "data_layer: {type: shared_fs}": ["data_layer.type"],
    "tensorboard_storage: {type: shared_fs}": ["tensorboard_storage.type"],
    "retention_policy: {log_retention_days: 3}": ["retention_policy.log_retention_days"],
    "profiling: {begin_on_batch: 0, end_after_batch: 10, sync_timings: true}": [
        "profiling.begin_on_batch",
        "profiling.end_after_batch",
        "profiling.sync_timings",
    ],
    "resources: {weight: 2, resource_pool: a100, shm_size: 4g}": [
        "resources.weight",
        "resources.resource_pool",
        "resources.shm_size",
    ],
    "resources: {devices: [], agent_label: a, native_parallel: false}": [
        "resources.devices",
        "resources.agent_label",
        "resources.native_parallel",
    ],
    "environment: {image: pytorch:2, proxy_ports: [], ports: {a: 1}, force_pull_image: true}": [
        "environment.image",
        "environment.proxy_ports",
        "environment.ports.a",
        "environment.force_pull_image",
    ],
    "environment: {image: {cpu: a, cuda: b}}": ["environment.image.cpu", "environment.image.cuda"],
    "environment: {registry_auth: a, add_capabilities: [], drop_capabilities: [], pod_spec: 3}": [
        "environment.registry_auth",
        "environment.add_capabilities",
        "environment.drop_capabilities",
        "environment.pod_spec",
    ],
    "integrations: {webhooks: {exclude: true}}": ["integrations.webhooks.exclude"],
}

PERIODS = {
    "min_validation_period: {batches: 100}": "validation_period",
    "min_checkpoint_period: {epochs: 2}": "checkpoint_period",
    "scheduling_unit: 100": "reporting_period",
}

REFUSED = {
    "internal: {native: {}}": "internal cannot be honoured: it marks experiments of an old kind",
    "security: {kerberos: {}}": "security cannot be honoured: there is no Kerberos",
    "slurm: {slots_per_node: 1}": "slurm cannot be honoured: write `resources: {engine: slurm, slurm: {…}}`",
    "pbs: {}": "pbs cannot be honoured: submit a batch job that runs the experiment",
    "resources: {slots: 3}": "resources.slots cannot be honoured: write `slots_per_trial`",
    "integrations: {pachyderm: {}}": "integrations.pachyderm cannot be honoured: there is no connection to Pachyderm",
    "searcher: {name: adaptive, metric: loss}": "searcher.name is 'adaptive', which no longer exists; use "
    "adaptive_asha",
    "searcher: {name: adaptive_simple, metric: loss}": "searcher.name is 'adaptive_simple', which no longer exists; "
    "use adaptive_asha",
    "searcher: {name: sync_halving, metric: loss}": "searcher.name is 'sync_halving', which no longer exists; use asha",
    "searcher: {name: pbt, metric: loss}": "searcher.name is 'pbt', which no longer exists; use custom",
}


def with_key(snippet: str) -> str:
    """Returns a configuration with the one key given."""
    key = snippet.partition(":")[0]
    others = [line for line in SINGLE.splitlines() if not line.startswith(f"{key}:")]
    return "\n".join([*others, snippet, ""])


@pytest.mark.parametrize(("snippet", "value"), KEPT.items(), ids=KEPT)
def test_a_kept_key_has_its_value(snippet: str, value: Any) -> None:
    """A key of the predecessor that is kept has the value given."""
    config = load(with_key(snippet), source="const.yaml").config

    assert to_mapping(config)[snippet.partition(":")[0]] == value


@pytest.mark.parametrize(("snippet", "paths"), IGNORED.items(), ids=IGNORED)
def test_an_ignored_key_costs_one_warning(snippet: str, paths: list[str]) -> None:
    """Each ignored field is named with its line and the reason, and leaves no trace."""
    warnings = warnings_of(with_key(snippet))

    assert [warning.partition(" is ignored: ")[0] for warning in warnings] == [
        f"const.yaml:4: {path}" for path in paths
    ]
    assert load(with_key(snippet), source="").config == loaded(SINGLE)


@pytest.mark.parametrize(("snippet", "option"), PERIODS.items(), ids=PERIODS)
def test_a_period_of_the_trainer_is_for_classes_without_a_script(snippet: str, option: str) -> None:
    """A period of the Trainer is kept with a warning if the entrypoint is a script, which must pass it to fit()."""
    result = load(with_key(snippet), source="const.yaml")
    key, _, value = snippet.partition(": ")

    assert result.warnings == (
        f"const.yaml:4: {key} is for Trial classes without a script: pass `{option}` to `Trainer.fit()`",
    )
    assert to_mapping(result.config)[key] == yaml.safe_load(value)


@pytest.mark.parametrize(
    "entrypoint",
    [
        "model_def:MyTrial",
        "python3 -m launch.horovod --trial model_def:MyTrial",
        "python3 -m determined.exec.harness model_def:MyTrial",
        "[python3, -m, core_sdk.pytorch, model_def:MyTrial]",
    ],
)
def test_a_class_without_a_script_has_its_periods_from_the_configuration(entrypoint: str) -> None:
    """With a Trial class as entrypoint, periods in the configuration give no warning."""
    loaded(f"entrypoint: {entrypoint}\nsearcher: {{name: single, metric: loss}}\nmin_validation_period: {{epochs: 1}}")


@pytest.mark.parametrize(("snippet", "problem"), REFUSED.items(), ids=REFUSED)
def test_a_refused_key_is_refused_by_name(snippet: str, problem: str) -> None:
    """A refused key of the predecessor is named with the reason or the replacement."""
    (found,) = problems_of(with_key(snippet))

    assert found.partition(": ")[2] == problem


def test_every_key_can_be_null() -> None:
    """Every optional key may be null, which is the same as leaving it out."""
    keys = [field.name for field in msgspec.structs.fields(ExperimentConfig) if not field.required]
    nothing = "".join(f"{key}: null\n" for key in (*keys, *ExperimentConfig.ignored, *ExperimentConfig.refused))
    text = f"entrypoint: a\nsearcher: {{name: single, metric: loss, max_length: null}}\n{nothing}"

    assert loaded(text, "reproducibility.experiment_seed=1") == loaded(
        "entrypoint: a\nsearcher: {name: single, metric: loss}\nreproducibility: {experiment_seed: 1}"
    )


def test_a_file_of_an_old_version_loads() -> None:
    """The ASHA example of the predecessor's own tutorial has the promotion form, with lengths."""
    config = loaded("""\
name: core-api-stage-3
hyperparameters:
  learning_rate: {type: log, base: 10, minval: -3, maxval: 1}
  n_filters1: {type: int, minval: 8, maxval: 64}
  dropout1: {type: double, minval: 0.2, maxval: 0.8}
searcher:
  name: adaptive_asha
  metric: test_loss
  smaller_is_better: true
  max_trials: 500
  max_length: {epochs: 20}
entrypoint: python3 model_def_adaptive.py
reproducibility: {experiment_seed: 1}
""")

    assert getattr(config.searcher, "max_length", None) == Length(20, "epochs")


def test_periods_may_be_zero() -> None:
    """A period may be zero, which means once at the end."""
    assert load(with_key("min_validation_period: 0"), source="").config.min_validation_period == Period(0)


def test_log_policies_are_merged_by_name() -> None:
    """Null switches one that is built in off; a policy of an old file is named by its pattern."""
    text = """\
log_policies:
- {name: CUDA OOM, pattern: null}
- {name: nan, pattern: loss is nan, action: cancel_retries}
- {pattern: Xid, action: {type: exclude_node}}
"""
    policies = loaded(SINGLE + text).log_policies

    assert [(policy.name, policy.pattern, policy.action) for policy in policies] == [
        ("CUDA OOM", None, None),
        ("ECC Error", ".*uncorrectable ECC error encountered.*", None),
        ("nan", "loss is nan", "cancel_retries"),
        ("Xid", "Xid", "exclude_node"),
    ]


def test_the_number_of_checkpoints_kept_stands_in_the_storage() -> None:
    """The number of checkpoints to keep is read from checkpoint_storage, with the predecessor's defaults."""
    assert loaded(SINGLE).retention.save_trial_best == 1
    assert loaded(f"{SINGLE}checkpoint_storage: {{save_trial_best: 3}}").retention.save_trial_best == 3
