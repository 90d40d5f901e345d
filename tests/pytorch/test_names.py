"""A script that was written for `determined.pytorch` finds its names here."""

from __future__ import annotations

import subprocess
import sys

import pytest

import core_sdk as det


@pytest.mark.parametrize(
    "name",
    [
        "DataLoader",
        "LRScheduler",
        "MetricReducer",
        "PyTorchCallback",
        "PyTorchExperimentalContext",
        "PyTorchTrial",
        "PyTorchTrialContext",
        "Reducer",
        "TorchData",
        "adapt_batch_sampler",
        "data_length",
        "init",
        "load_trial_from_checkpoint_path",
        "CheckpointLoadContext",
        "samplers",
        "to_device",
    ],
)
def test_pytorch_exports(name: str) -> None:
    """Every public name of `determined.pytorch` exists in our module."""
    assert hasattr(det.pytorch, name)
    assert name in det.pytorch.__all__


def test_importing_it_loads_torch_and_little_else() -> None:
    """The Core API, the tracker and the progress bar are loaded when a training begins."""
    program = (
        "import sys, torch; before = set(sys.modules); import core_sdk.pytorch;"
        "print(*sorted({'.'.join(name.split('.')[:3]) for name in set(sys.modules) - before}))"
    )

    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()

    ground = {"core_sdk._ground", *(f"core_sdk._ground.{name}" for name in ("importing", "keywords", "version"))}
    others = {name for name in loaded if not name.startswith("core_sdk._ground")}
    assert {*loaded} - others <= ground
    assert {".".join(name.split(".")[:2]) for name in others} <= {
        "core_sdk",
        *(f"core_sdk.{name}" for name in ("_runtime", "errors", "loop", "pytorch")),
    }
