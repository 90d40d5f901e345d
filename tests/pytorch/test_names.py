"""A script that was written for `determined.pytorch` finds its names here."""

from __future__ import annotations

import pytest

import core_sdk as det


@pytest.mark.parametrize("name", ["PyTorchCallback", "PyTorchTrial"])
def test_pytorch_exports(name: str) -> None:
    """Names of `determined.pytorch`."""
    assert hasattr(det.pytorch, name)
    assert name in det.pytorch.__all__
