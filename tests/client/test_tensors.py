"""The tensors of a checkpoint: listed without loading them, and exported as safetensors."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from buckets.opening import bucket_at
from buckets.servers import BucketServer
from interfaces.cli.commands import WarmCli
from torch.distributed import checkpoint as dcp

from core_sdk import core, loop
from core_sdk.client import Tracker
from core_sdk.errors import CheckpointDamagedError, CheckpointError, CheckpointNotFoundError

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


class Tied(torch.nn.Module):
    """A model whose output has the weights of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(16, 4)
        self.head = torch.nn.Linear(4, 16, bias=False)
        self.head.weight = self.embed.weight
        self.norm = torch.nn.LayerNorm(4)


NAMES = ["embed.weight", "head.weight", "norm.weight", "norm.bias"]


@pytest.fixture
def context(tmp_path: Path) -> Iterator[core.Context]:
    with core.init(name="tensors", checkpoint_storage=str(tmp_path / "storage")) as opened:
        yield opened


def store(context: core.Context, **files: Any) -> str:
    with context.checkpoint.store_path({"steps_completed": 1}) as (path, storage_id):
        for name, content in files.items():
            torch.save(content, path / f"{name}.pt")
    return storage_id


def store_state(context: core.Context, model: torch.nn.Module) -> str:
    optimizer = torch.optim.AdamW(model.parameters())
    return loop.State(model=model, optimizer=optimizer, counts={"steps": 3}).save(context, steps_completed=3)


def store_with_dcp(context: core.Context, model: torch.nn.Module) -> str:
    writer = context.checkpoint.dcp_writer({"steps_completed": 1})
    dcp.save({"model": model.state_dict(), "epoch": 3}, storage_writer=writer)  # type: ignore[attr-defined]
    assert writer.storage_id is not None
    return writer.storage_id


def store_safetensors(
    context: core.Context, tensors: dict[str, torch.Tensor], *, num_missing: int | None = None
) -> str:
    """Stores the tensors in one file, or each in a numbered file, of which so many are missing."""
    save_file = pytest.importorskip("safetensors.torch").save_file
    with context.checkpoint.store_path({"steps_completed": 1}) as (path, storage_id):
        if num_missing is None:
            save_file(tensors, path / "model.safetensors")
        else:
            for number, (name, tensor) in enumerate([*tensors.items()][: len(tensors) - num_missing], start=1):
                save_file({name: tensor}, path / f"model-{number:05}-of-{len(tensors):05}.safetensors")
    return storage_id


def listed(storage_id: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {one.name: (one.dtype, one.shape) for one in Tracker().get_checkpoint(storage_id).tensors()}


def test_tensors_are_listed_in_each_format(context: core.Context) -> None:
    """Names, types and shapes are those that were saved, by `torch.save()`, by `State` and by dcp."""
    model = Tied().bfloat16()
    shapes = {name: ("bfloat16", tuple(tensor.shape)) for name, tensor in model.state_dict().items()}

    assert listed(store(context, model=model.state_dict())) == shapes
    for storage_id in (store_state(context, model), store_with_dcp(context, model)):
        found = listed(storage_id)
        assert {name.removeprefix("model."): found[name] for name in found if name.startswith("model.")} == shapes


def test_a_file_is_listed_without_being_loaded(context: core.Context, tmp_path: Path) -> None:
    """Damage in the middle of a large file, which loading would find, does not keep it from being listed."""
    storage_id = store(context, model={"weight": torch.zeros(1_000_000)})
    path = tmp_path / "storage" / storage_id / "model.pt"
    with path.open("r+b") as file:
        file.seek(2_000_000)
        file.write(b"damage")

    assert listed(storage_id) == {"weight": ("float32", (1_000_000,))}
    pytest.importorskip("safetensors")
    with pytest.raises(CheckpointDamagedError, match=r"model\.pt"):
        Tracker().get_checkpoint(storage_id).export(tmp_path / "out")
    assert not (tmp_path / "out").exists()


class Touch:
    """A value whose unpickling makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_code_in_a_checkpoint_does_not_run(context: core.Context, tmp_path: Path) -> None:
    """A file that would run code is refused by its name, in both formats."""
    touched = tmp_path / "touched"
    as_torch = store(context, model={"weight": torch.zeros(2), "other": Touch(touched)})
    with context.checkpoint.store_path({"steps_completed": 2}) as (path, as_dcp):
        (path / ".metadata").write_bytes(pickle.dumps(Touch(touched)))

    for storage_id, file in ((as_torch, "model.pt"), (as_dcp, ".metadata")):
        with pytest.raises(CheckpointError, match=file):
            Tracker().get_checkpoint(storage_id).tensors()
    assert not touched.exists()


@pytest.mark.parametrize("save", [store_state, store_with_dcp])
def test_a_part_is_exported_as_transformers_names_it(
    context: core.Context, tmp_path: Path, save: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model of a checkpoint is one file with the model's own names; tied tensors of a file are written once."""
    safetensors = pytest.importorskip("safetensors.torch")
    model = Tied()
    storage_id = save(context, model)

    exported = Tracker().get_checkpoint(storage_id).export(tmp_path / "out", part="model", dtype="bf16")

    assert exported.files == ("model.safetensors",)
    loaded = safetensors.load_file(tmp_path / "out" / "model.safetensors")
    assert exported.tied == ({"head.weight": "embed.weight"} if save is store_state else {})
    assert loaded.keys() | exported.tied.keys() == set(NAMES)
    assert all(torch.equal(tensor, model.state_dict()[name].bfloat16()) for name, tensor in loaded.items())


TENSORS = {
    "layer.weight": torch.arange(6.0).reshape(2, 3),
    "layer.bias": torch.ones(3, dtype=torch.bfloat16),
    "count": torch.tensor(7),
}


def test_files_of_safetensors_are_read(context: core.Context, tmp_path: Path) -> None:
    """One file, or numbered ones that are one model, are listed and exported, and damage is told."""
    load_file = pytest.importorskip("safetensors.torch").load_file
    shapes = {name: (str(each.dtype).removeprefix("torch."), tuple(each.shape)) for name, each in TENSORS.items()}
    whole, numbered = store_safetensors(context, TENSORS), store_safetensors(context, TENSORS, num_missing=0)

    for storage_id in (whole, numbered):
        assert listed(storage_id) == shapes
        Tracker().get_checkpoint(storage_id).export(tmp_path / storage_id)
        exported = load_file(tmp_path / storage_id / "model.safetensors")
        assert exported.keys() == TENSORS.keys()
        assert all(torch.equal(tensor, TENSORS[name]) for name, tensor in exported.items())
    with pytest.raises(CheckpointError, match="2 of the 3 files with model-00001-of-00003"):
        listed(store_safetensors(context, TENSORS, num_missing=1))
    with context.checkpoint.store_path({"steps_completed": 1}) as (path, cut):
        (path / "model.safetensors").write_bytes((tmp_path / whole / "model.safetensors").read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"safetensors cannot read model\.safetensors"):
        listed(cut)


def test_settings_beside_the_weights_are_left_out(
    context: core.Context, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file whose loading would run code is named, and keeps nobody from the tensors of the others."""
    save_file = pytest.importorskip("safetensors.torch").save_file
    with context.checkpoint.store_path({"steps_completed": 1}) as (path, storage_id):
        save_file(TENSORS, path / "model.safetensors")
        torch.save({"exp_avg": torch.ones(2)}, path / "optimizer.pt")
        torch.save(Touch(tmp_path / "touched"), path / "training_args.bin")

    assert listed(storage_id).keys() == {*TENSORS, "exp_avg"}
    assert "training_args.bin holds more than tensors" in caplog.text
    checkpoint = Tracker().get_checkpoint(storage_id)
    with pytest.raises(CheckpointError, match=r"several files hold tensors \(.*training_args.bin, which cannot"):
        checkpoint.export(tmp_path / "out")
    with pytest.raises(CheckpointError, match="would run code"):
        checkpoint.export(tmp_path / "out", file="training_args.bin")
    checkpoint.export(tmp_path / "out", file="model.safetensors")
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize("server_name", ["moto"])
def test_a_checkpoint_in_a_bucket_is_exported(
    start_server: Callable[[str], BucketServer], server_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each format is listed and exported from a bucket as from a directory; damage is named, and leaves nothing."""
    load_file = pytest.importorskip("safetensors.torch").load_file
    server = start_server(server_name)
    for name, value in server.variables().items():
        monkeypatch.setenv(name, value)
    model = Tied()
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with core.init(name="tensors", checkpoint_storage=(url := server.make_bucket())) as context:
        stored = {store_state(context, model): "model", store_with_dcp(context, model): "model"}
        stored[store_safetensors(context, weights)] = ""

    for storage_id, part in stored.items():
        prefix = f"{part}." if part else ""
        assert listed(storage_id).keys() >= {f"{prefix}{name}" for name in NAMES}
        exported = Tracker().get_checkpoint(storage_id).export(tmp_path / storage_id, part=part)
        loaded = load_file(tmp_path / storage_id / "model.safetensors")
        assert loaded.keys() | exported.tied.keys() == set(NAMES)
        assert all(torch.equal(tensor, weights[name]) for name, tensor in loaded.items())
    bucket_at(url).put(f"{storage_id}/model.safetensors", b"damage")
    with pytest.raises(CheckpointDamagedError, match=r"model\.safetensors"):
        Tracker().get_checkpoint(storage_id).export(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_shards_have_an_index(context: core.Context, tmp_path: Path) -> None:
    """Files are no larger than asked for, and the index says where each tensor is."""
    safetensors = pytest.importorskip("safetensors.torch")
    weights = {f"layer.{number}": torch.full((10,), float(number)) for number in range(5)}
    storage_id = store(context, model=weights)

    exported = Tracker().get_checkpoint(storage_id).export(tmp_path / "out", max_shard_bytes=100)

    names = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
    assert exported.files == (*names, "model.safetensors.index.json")
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert index["metadata"] == {"total_size": 200}
    for name, tensor in weights.items():
        assert torch.equal(safetensors.load_file(tmp_path / "out" / index["weight_map"][name])[name], tensor)


def test_mistakes_are_told(context: core.Context, tmp_path: Path) -> None:
    """Values that are no tensors, several files, an unknown part and an existing target are refused in words."""
    pytest.importorskip("safetensors")
    checkpoint = Tracker().get_checkpoint(store_state(context, Tied()))

    with pytest.raises(CheckpointError, match=r"lr, .* are no tensors.*there are model.*--tensors-only"):
        checkpoint.export(tmp_path / "out")
    with pytest.raises(CheckpointError, match=r"no tensors in 'modle'; it has: model"):
        checkpoint.export(tmp_path / "out", part="modle")
    several = Tracker().get_checkpoint(store(context, a={"x": torch.ones(1)}, b={"x": torch.ones(1)}))
    with pytest.raises(CheckpointError, match=r"several files hold tensors \(a\.pt, b\.pt\): choose one \(--file\)"):
        several.export(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir() if "out" in path.name] == []
    several.export(tmp_path / "out", file="b.pt")
    with pytest.raises(FileExistsError, match="exists already"):
        several.export(tmp_path / "out", file="b.pt")
    context.checkpoint.delete(several.uuid)
    with pytest.raises(CheckpointNotFoundError, match=several.uuid):
        several.export(tmp_path / "gone", file="b.pt")
    assert "counts.steps" in checkpoint.export(tmp_path / "all", tensors_only=True).left_out


def test_a_command_lists_and_exports(context: core.Context, tmp_path: Path, warm_cli: WarmCli) -> None:
    """`describe --tensors` lists them, and `export` prints the directory and names what is tied."""
    pytest.importorskip("safetensors")
    storage_id = store(context, model=Tied().state_dict())

    described = warm_cli.run(tmp_path, "checkpoint", "describe", storage_id, "--tensors", "--json")
    exported = warm_cli.run(
        tmp_path, "checkpoint", "export", storage_id, "--dtype", "bf16", "--shards", "5GB", "--index"
    )
    mistaken = warm_cli.run(tmp_path, "checkpoint", "export", storage_id, "--shards", "5 gigs")

    assert [one["name"] for one in json.loads(described.output)["tensors"]] == NAMES
    assert (exported.status, exported.output.strip()) == (0, f"exports/{storage_id}"), exported.errors
    assert "head.weight is embed.weight" in exported.errors
    names = {path.name for path in (tmp_path / "exports" / storage_id).iterdir()}
    assert names == {"model.safetensors", "model.safetensors.index.json"}
    assert (mistaken.status, "no size such as 5GB" in mistaken.errors) == (2, True), mistaken.errors
