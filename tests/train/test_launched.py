"""Trainings in the ranks of a launcher, and in trials that have several nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from core_sdk._ground.environment.names import RUN_INFO_VARIABLE
from core_sdk._ground.records import PLACED, ClusterInfo, encode_file
from core_sdk.errors import JoinError
from core_sdk.train import ScalingConfig
from core_sdk.train.torch import TorchTrainer


def fit(num_workers: int | tuple[int, int]) -> None:
    TorchTrainer(lambda: None, scaling_config=ScalingConfig(num_workers=num_workers)).fit()


@pytest.mark.parametrize("num_workers", [2, (4, 8)])
def test_another_number_of_workers_than_ranks_is_refused(
    num_workers: int | tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a launcher the ranks are the workers."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "3")

    with pytest.raises(ValueError, match="a launcher has started 3 ranks, which are the workers: give 3, or 0"):
        fit(num_workers)


def test_workers_of_one_program_on_several_nodes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On each node of a trial a program would start workers of its own: it says what to write instead."""
    info = ClusterInfo(task_type=PLACED, container_addrs=["h1", "h2"], container_slot_counts=[8, 8])
    (tmp_path / "run.json").write_bytes(encode_file(info))
    monkeypatch.setenv(RUN_INFO_VARIABLE, str(tmp_path / "run.json"))

    with pytest.raises(JoinError, match=r"this trial has 2 nodes.*launch\.torch_distributed"):
        fit(16)
