"""Tensors that are spread over ranks, written by some ranks and read by others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch.ranks import Ranks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from core_sdk.core import DistributedContext
from core_sdk.errors import CheckpointTooNewError
from core_sdk.loop import _sharded_tensors as sharded_tensors
from core_sdk.loop._sharded_tensors import Place


@pytest.fixture(scope="module")
def written(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a directory to which two ranks have written a state."""
    directory = tmp_path_factory.mktemp("state")
    ranks.run(write, 2, directory)
    return directory


WEIGHT = torch.arange(15.0).reshape(5, 3)
WHOLE: dict[str, Any] = {
    "models": [
        {"weight": WEIGHT, "half": WEIGHT.to(torch.bfloat16), "one": torch.tensor([7.0]), "buffer": torch.ones(2)}
    ],
    "steps": (3, {"tied": WEIGHT}),
}
SPREAD: tuple[Place, ...] = (("models", 0, "weight"), ("models", 0, "half"), ("models", 0, "one"), ("steps", 1, "tied"))


def spread(tensor: torch.Tensor) -> DTensor:
    """Returns the tensor sharded by its rows."""
    mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
    return distribute_tensor(tensor, mesh, [Shard(0)])


def present() -> dict[str, Any]:
    """Tensors of the same sizes, spread over these ranks where they are to be."""
    model = {
        key: value if key == "buffer" else spread(torch.empty_like(value)) for key, value in WHOLE["models"][0].items()
    }
    return {"models": [model], "steps": [None, spread(torch.empty_like(WEIGHT))]}


def write(directory: str) -> None:
    state = {
        "models": [{key: value if key == "buffer" else spread(value) for key, value in WHOLE["models"][0].items()}],
        "steps": (3, {"tied": spread(WEIGHT)}),
    }
    with DistributedContext.from_torch_distributed() as distributed:
        rest, parts = sharded_tensors.ShardPlanner().take_out(state, distributed.channel)
    parts.write(Path(directory))
    torch.save(rest, Path(directory) / "rest.pt")


def read(directory: str) -> None:
    """Reads the state and checks every value and its sharding."""
    rest = torch.load(Path(directory) / "rest.pt", weights_only=True)
    state = sharded_tensors.put_back(rest, Path(directory), present())
    check(state, is_spread=True)


def spread_whole(directory: str) -> None:
    check(sharded_tensors.put_back(WHOLE, Path(directory), present()), is_spread=True)


def write_replicas(directory: str) -> None:
    """Writes a tensor that is sharded over two ranks and replicated twice."""
    mesh = init_device_mesh("cpu", (2, 2))
    tensor = distribute_tensor(WEIGHT, mesh, [Replicate(), Shard(0)])
    with DistributedContext.from_torch_distributed() as distributed:
        _, parts = sharded_tensors.ShardPlanner().take_out({"weight": tensor}, distributed.channel)
    parts.write(Path(directory))


def check(state: dict[str, object], *, is_spread: bool) -> None:
    def checked(place: Place, value: object) -> object:
        assert isinstance(value, DTensor) == (is_spread and place in SPREAD), place
        return value.full_tensor() if isinstance(value, DTensor) else value

    assert_equal(sharded_tensors._mapped(state, checked), WHOLE)


def assert_equal(found: object, expected: object) -> None:
    assert type(found) is type(expected)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_what_two_ranks_wrote_is_read_by_any_number(ranks: Ranks, written: Path, num_ranks: int) -> None:
    """A state that two ranks wrote is read exactly by one, two or three ranks."""
    ranks.run(read, num_ranks, written)


def test_without_a_process_group_whole_tensors_are_read(written: Path) -> None:
    """Without a process group whole tensors are read."""
    rest = torch.load(written / "rest.pt", weights_only=True)
    state = sharded_tensors.put_back(rest, written, {})

    check(state, is_spread=False)


def test_every_file_loads_with_weights_only(written: Path) -> None:
    """Every file loads with weights_only."""
    files = sorted(written.iterdir())

    assert [file.name for file in files] == [
        "rest.pt",
        "sharded_tensors.0.pt",
        "sharded_tensors.1.pt",
        "sharded_tensors.json",
    ]
    for file in files[:-1]:
        torch.load(file, weights_only=True)


def test_whole_tensors_are_spread_where_the_present_ones_are(ranks: Ranks, tmp_path: Path) -> None:
    """Whole tensors are sharded like the present ones when they are read."""
    ranks.run(spread_whole, 2, tmp_path)


def test_what_several_ranks_hold_is_written_once(ranks: Ranks, tmp_path: Path) -> None:
    """A tensor that several ranks hold is written once."""
    ranks.run(write_replicas, 4, tmp_path)

    parts = [torch.load(file, weights_only=True) for file in tmp_path.glob("*.pt")]
    state = sharded_tensors.put_back({"weight": None}, tmp_path, {})

    assert sum(tensor.numel() for part in parts for tensor in part.values()) == WEIGHT.numel()
    assert torch.equal(state["weight"], WEIGHT)


def test_an_index_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    """An index of a newer version is refused."""
    (tmp_path / "sharded_tensors.json").write_text('{"version": 2, "tensors": []}')

    with pytest.raises(CheckpointTooNewError):
        sharded_tensors.put_back({}, tmp_path, {})
