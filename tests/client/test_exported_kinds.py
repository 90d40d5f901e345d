"""Every kind of tensor in every layout: an export holds the same values, or names what safetensors cannot hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.distributed import checkpoint as dcp

from core_sdk import core
from core_sdk.client import Checkpoint, Tracker
from core_sdk.errors import CheckpointError

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # torch warns of layouts that are in beta, and of a save by one process
]
load_file = pytest.importorskip("safetensors.torch").load_file

BYTES = torch.arange(1, 49, dtype=torch.uint8).reshape(6, 8)
W = torch.arange(6.0).reshape(2, 3)
C = torch.tensor([[1 + 2j, 3 - 1j]])
DTYPES = [
    "uint8",
    "int8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float4_e2m1fn_x2",
]


def seen_as(dtype: str) -> torch.Tensor:
    return BYTES.clone().view(getattr(torch, dtype))


RIGHT: dict[str, Callable[[], torch.Tensor]] = {
    **{name: partial(seen_as, name) for name in DTYPES},
    "bool": lambda: BYTES > 20,
    "conj": lambda: C.clone().conj(),
    "neg": lambda: C.clone().conj().imag,
    "adjoint": lambda: torch.complex(W, W).adjoint(),
    "transposed": lambda: W.clone().t(),
    "column": lambda: W.clone()[:, 1],
    "expanded": lambda: torch.ones(1).expand(4),
    "channels last": lambda: torch.rand(1, 2, 3, 4).to(memory_format=torch.channels_last),
    "scalar": lambda: torch.tensor(3.0),
    "empty": lambda: torch.empty(0, 3),
    "not a number": lambda: torch.tensor([torch.nan, torch.inf, -torch.inf, -0.0]),
}
REFUSED: dict[str, tuple[Callable[[], torch.Tensor], str]] = {
    "sparse": (W.to_sparse, "sparse_coo"),
    "CSR": (W.to_sparse_csr, "sparse_csr"),
    "CSC": (W.to_sparse_csc, "sparse_csc"),
    "BSR": (lambda: W.to_sparse_bsr((1, 1)), "sparse_bsr"),
    "BSC": (lambda: W.to_sparse_bsc((1, 1)), "sparse_bsc"),
    "quantized": (lambda: torch.quantize_per_tensor(W, 0.1, 0, torch.qint8), "quantized"),
    "quantized by channel": (
        lambda: torch.quantize_per_channel(W, torch.tensor([0.1, 0.2]), torch.tensor([0, 0]), 0, torch.quint8),
        "quantized",
    ),
    "meta": (lambda: torch.empty(2, 3, device="meta"), "meta"),
    "nested": (lambda: torch.nested.nested_tensor([W, W[:1]]), "nested"),
    "jagged": (lambda: torch.nested.nested_tensor([W, W[:1]], layout=torch.jagged), "nested"),
    "complex128": (lambda: C.to(torch.complex128), "complex128"),
    "complex32": (lambda: C.to(torch.complex32), "complex32"),
    "bits8": (lambda: BYTES.clone().view(torch.bits8), "bits8"),
}


@pytest.fixture
def context(tmp_path: Path) -> Iterator[core.Context]:
    with core.init(name="kinds", checkpoint_storage=str(tmp_path / "storage")) as opened:
        yield opened


def stored(context: core.Context, content: object) -> Checkpoint:
    with context.checkpoint.store_path({"steps_completed": 1}) as (path, storage_id):
        torch.save(content, path / "model.pt")
    return Tracker().get_checkpoint(storage_id)


def stored_by_dcp(context: core.Context, content: Mapping[str, object]) -> Checkpoint:
    writer = context.checkpoint.dcp_writer({"steps_completed": 1})
    dcp.save(dict(content), storage_writer=writer, no_dist=True)  # type: ignore[attr-defined]
    assert writer.storage_id is not None
    return Tracker().get_checkpoint(writer.storage_id)


def is_same(left: torch.Tensor, right: torch.Tensor) -> bool:
    right = right.detach().resolve_conj().resolve_neg().contiguous()
    same_bytes = left.reshape(-1).view(torch.uint8).equal(right.reshape(-1).view(torch.uint8))
    return (left.dtype, left.shape) == (right.dtype, right.shape) and same_bytes


def test_an_export_holds_the_same_values(context: core.Context, tmp_path: Path) -> None:
    """Dtype, shape and bytes are those of each tensor, from a file of torch.save() and from dcp.save()."""
    tensors = {kind: make().detach() for kind, make in RIGHT.items()} | {"parameter": torch.nn.Parameter(W.clone())}

    for number, checkpoint in enumerate([stored(context, tensors), stored_by_dcp(context, tensors)]):
        listed = {one.name: (one.dtype, one.shape, one.layout) for one in checkpoint.tensors()}
        checkpoint.export(tmp_path / f"out-{number}")

        exported = load_file(tmp_path / f"out-{number}" / "model.safetensors")
        assert exported.keys() == tensors.keys()
        for kind, tensor in tensors.items():
            assert listed[kind] == (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), "strided")
            assert is_same(exported[kind], tensor), kind


def test_what_safetensors_cannot_hold_is_named(context: core.Context, tmp_path: Path) -> None:
    """It is listed, its export is refused by its name, and the other parts can be exported."""
    content = {kind: {"a": make()} for kind, (make, _) in REFUSED.items()}
    by_dcp = {kind: content[kind] for kind in ("quantized", "complex128", "complex32")}  # it saves no others

    for number, checkpoint in enumerate(
        [stored(context, content | {"model": {"w": W}}), stored_by_dcp(context, by_dcp | {"model": {"w": W}})]
    ):
        kinds = [one.name.removesuffix(".a") for one in checkpoint.tensors() if one.name.endswith(".a")]
        assert kinds == list((content, by_dcp)[number])
        for kind in kinds:
            with pytest.raises(CheckpointError, match=rf"safetensors cannot hold {kind}\.a \({REFUSED[kind][1]}\)"):
                checkpoint.export(tmp_path / "out", part=kind)
        with pytest.raises(CheckpointError, match=r"cannot hold .*: export a part without them \(--part\)"):
            checkpoint.export(tmp_path / "out")
        checkpoint.export(tmp_path / f"model-{number}", part="model")
        assert is_same(load_file(tmp_path / f"model-{number}" / "model.safetensors")["w"], W)


@pytest.mark.parametrize("shards", [None, 1])
def test_tied_tensors_keep_their_own_shape_and_sign(context: core.Context, tmp_path: Path, shards: int | None) -> None:
    """Of tensors that share memory, only those with the same values are written once."""
    w, c, z = W.clone(), C.clone(), C.clone()
    views = {"w": w, "same": w[:], "flat": w.view(-1), "t": w.t(), "row": w[1], "format": w}
    views |= {"c": c, "conj": c.conj(), "imag": z.imag, "neg": z.conj().imag}

    exported = stored(context, views).export(tmp_path / "out", max_shard_bytes=shards)

    assert exported.tied == {"same": "w"}
    found = {name: one for file in (tmp_path / "out").glob("*.safetensors") for name, one in load_file(file).items()}
    assert found.keys() == views.keys() - {"same"}
    assert all(is_same(found[name], views[name]) for name in found)


@pytest.mark.parametrize("content", [{"a.b": W, "a": {"b": -W}}, {1: W, "1": -W}, {"a": [W], "a.0": -W}])
def test_tensors_of_one_name_are_listed_and_refused(
    context: core.Context, tmp_path: Path, content: dict[object, object]
) -> None:
    """A dotted name that two tensors would have is listed twice, and refused only where it is part of the export."""
    checkpoint = stored(context, {"model": content, "other": {"w": W}})

    (name,) = {one.name for one in checkpoint.tensors()} - {"other.w"}
    assert [one.name for one in checkpoint.tensors()].count(name) == 2
    with pytest.raises(CheckpointError, match=rf"several tensors with the name {re.escape(name)}: rename"):
        checkpoint.export(tmp_path / "out", part="model")
    checkpoint.export(tmp_path / "out", part="other")


@pytest.mark.parametrize(("content", "part"), [({"__metadata__": W}, ""), ({"model": {"__metadata__": W}}, "model")])
def test_the_name_that_the_format_reserves_is_refused(
    context: core.Context, tmp_path: Path, content: dict[str, object], part: str
) -> None:
    """A file with such a tensor could not be opened."""
    with pytest.raises(CheckpointError, match=r"__metadata__ \(the name belongs to its format\)"):
        stored(context, content).export(tmp_path / "out", part=part)

    assert not (tmp_path / "out").exists()


def test_a_dtype_that_cannot_be_converted_is_named(context: core.Context, tmp_path: Path) -> None:
    """Packed numbers have no other form; a conversion of all others leaves integers and complex numbers alone."""
    packed = stored(context, {"a": RIGHT["float4_e2m1fn_x2"]()})
    with pytest.raises(CheckpointError, match=r"a \(torch\.float4_e2m1fn_x2\) cannot be converted to bf16"):
        packed.export(tmp_path / "out", dtype="bf16")

    names = [name for name in RIGHT if name != "float4_e2m1fn_x2"]
    stored(context, {name: RIGHT[name]() for name in names}).export(tmp_path / "all", dtype="bf16")

    for name, tensor in load_file(tmp_path / "all" / "model.safetensors").items():
        assert tensor.dtype == (torch.bfloat16 if RIGHT[name]().is_floating_point() else RIGHT[name]().dtype)
