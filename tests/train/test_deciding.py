"""What is decided about a training, as functions of values."""

from __future__ import annotations

from typing import Any

import pytest

from core_sdk._ground.records import CheckpointPinned, CheckpointStored, recorded_config, with_given
from core_sdk._home.checkpoints import RecordedCheckpoint
from core_sdk._runtime.retention import best, to_delete
from core_sdk._runtime.workers import num_workers
from core_sdk.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from core_sdk.train._worker.running import takes_config
from core_sdk.train._worker.saving import own_names


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_workers": -1}, "num_workers is -1"),
        ({"num_workers": (3, 2)}, r"num_workers is \(3, 2\)"),
        ({"num_workers": (0, 2)}, r"num_workers is \(0, 2\)"),
        ({"num_workers": "two"}, "num_workers is 'two'"),
        ({"placement_strategy": "TIGHT"}, "placement_strategy is 'TIGHT'"),
        ({"engine": "spark"}, "engine is 'spark'"),
        ({"engine": "local", "address": "10.0.0.1:6379"}, "engine='local' has no address"),
        ({"resources_per_worker": {"CPU": -1}}, "-1 CPU"),
        ({"use_gpu": True, "resources_per_worker": {"GPU": 0}}, "has no GPU"),
        ({"resources_per_worker": {"GPU": 1}}, "has GPUs, and use_gpu is False"),
    ],
)
def test_a_scaling_that_cannot_be_is_refused(wrong: dict[str, Any], message: str) -> None:
    """A ScalingConfig with an impossible value is refused when it is made, with an error that names the argument."""
    with pytest.raises(ValueError, match=message):
        ScalingConfig(**wrong)


def test_a_scaling_says_what_all_workers_ask_for() -> None:
    """total_resources is what all workers ask for; with an elastic number of workers, for the largest number."""
    elastic = ScalingConfig(num_workers=(2, 4), use_gpu=True, resources_per_worker={"CPU": 2, "GPU": 1, "disk": 0.5})

    assert elastic.elasticity_enabled
    assert (elastic.min_workers, elastic.max_workers) == (2, 4)
    assert elastic.total_resources == {"CPU": 8, "GPU": 4, "disk": 2}
    assert ScalingConfig(num_workers=3).total_resources == {"CPU": 3}
    assert ScalingConfig(num_workers=3, use_gpu=True).total_resources == {"GPU": 3}


def test_other_settings_that_cannot_be_are_refused() -> None:
    """Impossible values of other settings are refused when they are made, with an error that names the argument."""
    with pytest.raises(ValueError, match="max_failures is -2"):
        FailureConfig(max_failures=-2)
    with pytest.raises(ValueError, match="num_to_keep is 0"):
        CheckpointConfig(num_to_keep=0)
    with pytest.raises(ValueError, match="keep_every must be"):
        CheckpointConfig(keep_every={"epochs": 3})
    with pytest.raises(ValueError, match="checkpoint_score_order is 'up'"):
        CheckpointConfig(checkpoint_score_order="up")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="callbacks has a str"):
        RunConfig(callbacks=["hello"])  # type: ignore[list-item]


def test_as_many_workers_start_as_there_is_room_for() -> None:
    """As many workers start as there is room for, within the minimum and the maximum."""
    assert [num_workers(2, 4, room) for room in (None, 0, 1, 2, 3, 4, 9)] == [4, 2, 2, 2, 3, 4, 4]


def recorded(*losses: float | None, pinned: int = -1) -> list[RecordedCheckpoint]:
    return [
        RecordedCheckpoint(
            attempt=1,
            record=CheckpointStored(
                time=0.0,
                storage_id=str(index),
                storage="file:///",
                steps_completed=index,
                metadata={"metrics": {} if loss is None else {"loss": loss}},
                resources={},
            ),
            resources={},
            metadata={},
            is_superseded=False,
            pin=CheckpointPinned(time=0.0, storage_id=str(index)) if index == pinned else None,
        )
        for index, loss in enumerate(losses)
    ]


def test_the_best_checkpoints_and_the_newest_one_are_kept() -> None:
    """The best checkpoints and the newest are kept, or the newest without a score; pinned ones are never deleted."""
    by_loss = CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min")

    assert to_delete(recorded(3, 1, 2, 4), by_loss) == ["0"]
    assert to_delete(recorded(3, 1, 2, 0), by_loss) == ["0", "2"]
    assert to_delete(recorded(None, 1, float("nan"), 2), by_loss) == ["0", "2"]
    assert to_delete(recorded(3, 1, 2, 4), CheckpointConfig(num_to_keep=2)) == ["0", "1"]
    assert to_delete(recorded(3, 1, 2, 4, pinned=0), CheckpointConfig(num_to_keep=2)) == ["1"]
    assert to_delete(recorded(3, 1, 2, 4), CheckpointConfig()) == []
    at_intervals = CheckpointConfig(num_to_keep=1, keep_every={"steps": 3})
    assert to_delete(recorded(*[None] * 8), at_intervals) == ["0", "1", "2", "4", "5"]


def test_the_best_checkpoint_is_the_last_one() -> None:
    """best() lists the checkpoints to keep by score, the newest of equal ones first, without a worse newest one."""
    by_loss = CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min")
    by_loss_all = CheckpointConfig(checkpoint_score_attribute="loss")

    assert [each.record.storage_id for each in best(recorded(3, 1, 2, 4), by_loss)] == ["2", "1"]
    assert [each.record.storage_id for each in best(recorded(1, None, 3, 1), by_loss_all)] == ["1", "0", "3", "2"]
    assert [each.record.storage_id for each in best(recorded(3, 1, 2), CheckpointConfig(num_to_keep=2))] == ["1", "2"]


def test_of_files_of_one_name_the_lowest_rank_stores_its_own() -> None:
    """Of files with one name, the lowest rank's is stored; others store what no lower rank has."""
    names = [["model.pt", "rank0"], ["model.pt", "rank1"], ["model.pt", "rank1", "rank2"]]

    assert [own_names(names, rank) for rank in range(3)] == [{"model.pt", "rank0"}, {"rank1"}, {"rank2"}]


def test_a_training_function_takes_nothing_or_its_configuration() -> None:
    """A training function takes nothing or its configuration; one that needs more is refused."""

    def two(config: object, other: object) -> None: ...

    def keyword(*, config: object) -> None: ...

    assert not takes_config(lambda: 1)
    assert takes_config(lambda config: 1)
    assert takes_config(lambda config=None, other=2: 1)
    assert takes_config(lambda *arguments: 1)
    for function in (two, keyword):
        with pytest.raises(ValueError, match="must take nothing, or one dictionary"):
            takes_config(function)


def test_values_that_the_trial_was_started_with_replace_those_of_the_configuration() -> None:
    """Values given at the trial's start replace the program's, which keeps what JSON would change or lose."""
    config = {"lr": 0.1, "shape": (1, 2), "activation": print}

    assert recorded_config(config) == {"lr": 0.1, "shape": [1, 2]}
    assert with_given(config, {"lr": 0.5, "shape": [1, 2], "depth": 3}) == {
        "lr": 0.5,
        "shape": (1, 2),
        "activation": print,
        "depth": 3,
    }
