"""Saves of a state on a GPU: copied into pinned memory, and written while the training goes on."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from parts import needs
from torch import nn
from torch.distributed.checkpoint.state_dict_saver import async_save

from core_sdk import core, loop
from core_sdk._analysis.tensors import export
from core_sdk._home.storage import DirectoryStorage
from core_sdk.loop._host_memory import HostMemory

pytestmark = needs("gpu")

MB = 1 << 20


@pytest.fixture
def context(tmp_path: Path) -> Iterator[core.Context]:
    with core.init(name="gpu", checkpoint_storage=str(tmp_path / "storage")) as opened:
        yield opened


def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
    """Returns a model in bfloat16, with tied weights, and an optimizer that has made a step."""
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Linear(64, 64)).to("cuda", torch.bfloat16)
    model.append(nn.Linear(64, 64, device="cuda", dtype=torch.bfloat16))
    model[3].weight = model[2].weight
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    model(torch.randn(8, 64, device="cuda", dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    return model, optimizer


def tensors_in(state: Any) -> list[torch.Tensor]:
    if isinstance(state, torch.Tensor):
        return [state]
    values = state.values() if isinstance(state, dict) else state if isinstance(state, list | tuple) else ()
    return [tensor for value in values for tensor in tensors_in(value)]


def test_tensors_of_a_gpu_are_copied_into_pinned_memory() -> None:
    """Tensors on a GPU are copied into the same pinned memory each time, before the call returns."""
    weight = torch.ones(1_000_000, device="cuda")
    memory = HostMemory()
    addresses = set()
    for step in range(3):
        copied = memory.copy([weight, weight[5:]])
        addresses.add(copied[0].data_ptr())
        with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
            weight.add_(1)
        assert (copied[0].is_pinned(), copied[0].device.type) == (True, "cpu")
        assert copied[0].untyped_storage().data_ptr() == copied[1].untyped_storage().data_ptr()
        assert torch.equal(copied[0], torch.full((1_000_000,), 1.0 + step))
        torch.cuda.synchronize()

    assert len(addresses) == 1


def test_a_save_leaves_no_trace_in_the_generators_of_the_gpu(context: core.Context) -> None:
    """Numbers that are drawn on the GPU during a save change neither those of the training nor those of a resume."""
    torch.cuda.manual_seed(1)
    expected = torch.rand(3, device="cuda")
    torch.cuda.manual_seed(1)
    state = loop.State()

    context.info.latest_checkpoint = state.save(
        context, steps_completed=1, write=lambda directory: torch.rand(3, device="cuda")
    )

    assert torch.equal(torch.rand(3, device="cuda"), expected)
    assert state.restore(context)
    assert torch.equal(torch.rand(3, device="cuda"), expected)


@pytest.mark.parametrize("wait", [True, False], ids=["at once", "in the background"])
def test_what_changes_after_a_save_does_not_show_in_it(context: core.Context, wait: bool) -> None:
    """The checkpoint has the bits of the moment of the call, although all tensors change right after it."""
    model, optimizer = trained()
    state = loop.State(model=model, optimizer=optimizer)
    expected = [tensor.cpu().clone() for tensor in tensors_in([model.state_dict(), optimizer.state_dict()])]

    for step in (1, 2):  # the second one uses the memory of the first
        storage_id = state.save(context, steps_completed=step, wait=wait)
    for tensor in tensors_in([model.state_dict(), optimizer.state_dict()]):
        tensor.fill_(-1)

    context.checkpoint.wait()
    with context.checkpoint.restore_path(storage_id) as path:
        found = torch.load(path / "state.pt", map_location="cpu", weights_only=True)["objects"]
    stored = tensors_in([found["model"], found["optimizer"]])
    assert [each.dtype for each in stored] == [each.dtype for each in expected]
    assert all(torch.equal(one, other) for one, other in zip(stored, expected, strict=True))


def test_weights_in_bfloat16_are_exported(context: core.Context, tmp_path: Path) -> None:
    """A checkpoint that `torch.save()` has written from a GPU becomes a file of safetensors, with the same bits."""
    from safetensors.torch import load_file

    model, _ = trained()
    with context.checkpoint.store_path({"steps_completed": 1}) as (path, storage_id):
        torch.save(model.state_dict(), path / "model.pt")

    exported = export(DirectoryStorage(tmp_path / "storage"), storage_id, tmp_path / "exported")

    weights = load_file(exported.path / "model.safetensors", device="cuda")
    own = {name: tensor for name, tensor in model.state_dict().items() if name not in exported.tied}
    assert weights.keys() == own.keys()
    assert exported.tied == {"3.weight": "2.weight"}
    assert all(torch.equal(weights[name], tensor) and weights[name].is_cuda for name, tensor in own.items())


def test_no_memory_grows_with_the_number_of_saves(context: core.Context) -> None:
    """After 100 saves there is no more memory in use, on the GPU, pinned or otherwise, than after 10."""
    state = loop.State(weights={"weights": [torch.randn(MB, device="cuda") for _ in range(4)]})

    def save(num_saves: int) -> dict[str, int]:
        for step in range(num_saves):
            storage_id = state.save(context, steps_completed=step, wait=False)
            context.checkpoint.wait()
            context.checkpoint.delete(storage_id)
        return {
            "cuda": torch.cuda.memory_reserved(),
            "pinned": torch.cuda.host_memory_stats().get("allocated_bytes.current", 0),
            "resident": psutil.Process().memory_info().rss,
        }

    before = save(10)
    after = save(90)

    assert (after["cuda"], after["pinned"]) == (before["cuda"], before["pinned"])
    assert after["resident"] < before["resident"] + 64 * MB  # 90 copies would be 1.4 GB


def test_a_save_blocks_for_less_time_than_that_of_torch(context: core.Context, tmp_path: Path) -> None:
    """`State.save(wait=False)` blocks the training for less time than `dcp.async_save()` of the same 512 MB."""
    tensors = {f"layer {index}": torch.randn(4 * MB, device="cuda") for index in range(32)}
    state = loop.State(tensors=tensors)
    rendezvous = f"file://{tmp_path / 'store'}"
    torch.distributed.init_process_group("cpu:gloo,cuda:nccl", init_method=rendezvous, rank=0, world_size=1)
    blocked_s: dict[str, list[float]] = {"own": [], "dcp": []}
    try:
        for step in range(5):
            begun_at = time.perf_counter()
            storage_id = state.save(context, steps_completed=step, wait=False)
            blocked_s["own"].append(time.perf_counter() - begun_at)
            context.checkpoint.delete(storage_id)

            begun_at = time.perf_counter()
            future = async_save(tensors, checkpoint_id=tmp_path / "dcp")
            blocked_s["dcp"].append(time.perf_counter() - begun_at)
            future.result()  # type: ignore[union-attr]
    finally:
        torch.distributed.destroy_process_group()

    # The first of each takes its memory.
    own_s, dcp_s = (statistics.median(times_s[1:]) for times_s in blocked_s.values())
    print(f"blocked for {own_s * 1e3:.1f} ms; dcp.async_save for {dcp_s * 1e3:.1f} ms")
    assert own_s < dcp_s, blocked_s
