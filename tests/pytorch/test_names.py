"""A script that was written for `determined.pytorch` finds its names here."""

from __future__ import annotations

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
    """Names of `determined.pytorch`."""
    assert hasattr(det.pytorch, name)
    assert name in det.pytorch.__all__
