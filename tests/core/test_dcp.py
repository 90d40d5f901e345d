"""Checkpoints that `torch.distributed.checkpoint` writes and reads through the Context."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from buckets.servers import BucketServer
from processes import wait_for
from promises import promise
from pytorch.ranks import Ranks, warm_ranks
from saving import checkpoint_ids
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from core_sdk import core
from core_sdk._home.storage import DirectoryStorage
from core_sdk.client import Tracker
from core_sdk.errors import CheckpointDamagedError, CheckpointNotFoundError, GraceExceededError

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

STEPS = {"steps_completed": 3}
FAILS = "the disk of rank 1 has gone"


@contextlib.contextmanager
def context(storage: str, **options: Any) -> Iterator[core.Context]:
    if torch.distributed.is_initialized():
        distributed = core.DistributedContext.from_torch_distributed()
        with core.init(distributed=distributed, checkpoint_storage=storage, name="dcp", **options) as opened:
            yield opened
    else:
        with core.init(checkpoint_storage=storage, name="dcp", **options) as opened:
            yield opened


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """Runs functions of this file on several ranks, which have a process group."""
    with warm_ranks(tmp_path_factory.mktemp("ranks")) as warm:
        yield warm


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[core.Context]:
    with context(str(tmp_path / "storage")) as opened:
        yield opened


@pytest.fixture
def storage(tmp_path: Path) -> DirectoryStorage:
    return DirectoryStorage(tmp_path / "storage")


def left_over(storage: DirectoryStorage) -> list[Path]:
    return list((storage.root / ".staging").glob("*"))


def state() -> dict[str, Any]:
    return {"weight": torch.arange(24.0).reshape(8, 3), "epoch": 7}


def split_state(fill: float | None = None) -> dict[str, Any]:
    """Returns the state with its tensor split over all ranks, of its own values or of `fill`."""
    whole = state()["weight"] if fill is None else torch.full((8, 3), fill)
    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    return {"weight": distribute_tensor(whole, mesh, [Shard(0)]), "epoch": 7 if fill is None else 0}


def assert_loaded(loaded: dict[str, Any]) -> None:
    weight = loaded["weight"]
    assert torch.equal(weight.full_tensor() if isinstance(weight, DTensor) else weight, state()["weight"])
    assert loaded["epoch"] == 7


class FailingPlanner(DefaultSavePlanner):
    """A planner that fails on one rank when it resolves its first tensor, and may kill the rank at any step."""

    def __init__(self, rank: int, step: str = "", *, kills: bool = False) -> None:
        super().__init__()
        self._is_chosen = int(os.environ.get("RANK", 0)) == rank
        self._step = step
        self._kills = kills

    def _at(self, step: str) -> None:
        if self._is_chosen and step == self._step:
            if self._kills:
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError(FAILS)

    def set_up_planner(self, *args: Any, **kwargs: Any) -> None:
        self._at("beginning")
        super().set_up_planner(*args, **kwargs)

    def create_local_plan(self) -> Any:
        self._at("local plan")
        return super().create_local_plan()

    def create_global_plan(self, all_plans: Any) -> Any:
        self._at("global plan")
        return super().create_global_plan(all_plans)

    def finish_plan(self, new_plan: Any) -> Any:
        self._at("plan")
        return super().finish_plan(new_plan)

    def resolve_data(self, write_item: Any) -> Any:
        self._at("data")
        return super().resolve_data(write_item)


def save(to: core.Context, saved: dict[str, Any], planner: DefaultSavePlanner | None = None, **options: Any) -> str:
    writer = to.checkpoint.dcp_writer(STEPS, **options)
    dcp.save(saved, storage_writer=writer, planner=planner)  # type: ignore[attr-defined]
    assert writer.storage_id is not None
    return writer.storage_id


def save_in_thread(to: core.Context, planner: DefaultSavePlanner | None = None, **options: Any) -> Future[Any]:
    writer = to.checkpoint.dcp_writer(STEPS)
    future = dcp.async_save(state(), storage_writer=writer, planner=planner, **options)  # type: ignore[attr-defined]
    assert isinstance(future, Future)
    return future


def load(into: core.Context, loaded: dict[str, Any], storage_id: str) -> None:
    dcp.load(loaded, storage_reader=into.checkpoint.dcp_reader(storage_id))  # type: ignore[attr-defined]


def save_on_all_ranks(storage: str) -> None:
    """Saves, fails on one rank, and saves again in a thread; says how often each rank has heard of the failure."""
    with context(storage) as opened:
        first = save(opened, split_state(), thread_count=2)
        with pytest.raises(CheckpointException) as failure:
            save(opened, split_state(), FailingPlanner(1, "data"))
        assert FAILS in str(failure.value)
        loaded = split_state(fill=0.0)
        load(opened, loaded, first)
        assert_loaded(loaded)
        writer = opened.checkpoint.dcp_writer(STEPS)
        saved = split_state()
        dcp.async_save(saved, storage_writer=writer)  # type: ignore[attr-defined]
        saved["weight"].to_local().fill_(-1.0)
    print(first, writer.storage_id)


def load_and_save_again(storage: str, *storage_ids: str) -> None:
    with context(storage) as opened:
        for storage_id in storage_ids:
            loaded = split_state(fill=0.0)
            load(opened, loaded, storage_id)
            assert_loaded(loaded)
        print(save(opened, loaded))


def save_and_be_killed(storage: str, rank: str, step: str) -> None:
    with context(storage) as opened:
        save(opened, split_state(), FailingPlanner(int(rank), step, kills=True))


def save_and_be_killed_in_finish(storage: str, when: str) -> None:
    """Kills the coordinator when it opens, makes, renames or removes a file in `finish` for the `when`-th time."""
    with context(storage) as opened:
        writer = opened.checkpoint.dcp_writer(STEPS)
        finish, calls, is_in_finish = writer.finish, itertools.count(1), threading.Event()

        def kill(event: str, _: object) -> None:
            if is_in_finish.is_set() and (event == "open" or event.startswith("os.")) and next(calls) == int(when):
                os.kill(os.getpid(), signal.SIGKILL)

        def finish_and_be_killed(metadata: Metadata, results: list[list[WriteResult]]) -> None:
            sys.addaudithook(kill)
            is_in_finish.set()
            finish(metadata, results)
            is_in_finish.clear()

        writer.finish = finish_and_be_killed  # type: ignore[method-assign]
        dcp.save(split_state(), storage_writer=writer)  # type: ignore[attr-defined]


@promise("dcp-checkpoint-whole")
def test_any_number_of_ranks_loads_what_four_have_saved(
    ranks: Ranks, storage: DirectoryStorage, alone: core.Context
) -> None:
    """Four ranks save, two load that and save it, and one loads both; a failure on one rank is told to all."""
    of_four = {tuple(line.split()) for line in ranks.run(save_on_all_ranks, 4, storage.root)}
    (ids,) = of_four
    (of_two,) = {line.strip() for line in ranks.run(load_and_save_again, 2, storage.root, *ids)}

    for storage_id in (*ids, of_two):
        loaded = {"weight": torch.zeros(8, 3), "epoch": 0}
        load(alone, loaded, storage_id)
        assert_loaded(loaded)
    assert sorted((*ids, of_two)) == checkpoint_ids(storage)
    assert storage.verify(ids[0]).ranks == (0, 1, 2, 3)
    assert left_over(storage) == []
    recorded = {checkpoint.uuid for checkpoint in Tracker().list_checkpoints()}
    assert recorded == {*ids, of_two}


@promise("dcp-checkpoint-whole")
@pytest.mark.parametrize(("rank", "step"), [(0, "global plan"), (0, "data"), (1, "data"), (1, "plan")])
def test_a_kill_at_any_step_leaves_no_checkpoint(ranks: Ranks, storage: DirectoryStorage, rank: int, step: str) -> None:
    """No checkpoint is there after a kill of one rank, and the next process that saves removes what was written."""
    processes = ranks.start(save_and_be_killed, 2, storage.root, rank, step)

    codes = [process.wait() for process in processes]

    assert codes[rank] == -signal.SIGKILL
    assert codes[1 - rank] > 0
    assert checkpoint_ids(storage) == []
    storage.sweep()
    assert left_over(storage) == []


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.timeout(1200))])
def test_a_kill_in_finish_leaves_all_or_nothing(ranks: Ranks, storage: DirectoryStorage, every: int) -> None:
    """Wherever the coordinator dies once all ranks have written, the checkpoint is absent, or whole on both ranks."""
    num_killed, seen = 0, set()

    for when in itertools.count(1, every):
        before = checkpoint_ids(storage)
        codes = [process.wait() for process in ranks.start(save_and_be_killed_in_finish, 2, storage.root, when)]
        new = sorted({*checkpoint_ids(storage)} - {*before})
        for storage_id in new:
            assert storage.verify(storage_id).ranks == (0, 1)
        storage.sweep()
        assert left_over(storage) == []
        if codes == [0, 0]:
            break
        assert codes[0] == -signal.SIGKILL
        seen.add(len(new))
        num_killed += 1

    assert len(new) == 1
    assert num_killed > 20 // every
    assert seen == {0, 1}


def test_a_script_without_a_process_group_saves_alone(alone: core.Context, storage: DirectoryStorage) -> None:
    """A checkpoint is stored, recorded with its metadata and verified, and its index names its id."""
    storage_id = save(alone, state())

    loaded = {"weight": torch.zeros(8, 3), "epoch": 0}
    load(alone, loaded, storage_id)
    assert_loaded(loaded)
    assert alone.checkpoint.get_metadata(storage_id) == STEPS
    assert storage.verify(storage_id).files.keys() == {".metadata", "__0_0.distcp", "metadata.json"}
    assert left_over(storage) == []


def test_leaving_the_context_waits_for_a_save_in_a_thread(group: None, storage: DirectoryStorage) -> None:
    """The last `async_save()` need not be waited for, though it waits itself until the block is about to end."""
    about_to_end = threading.Event()

    class Waiting(DefaultSavePlanner):
        def create_local_plan(self) -> Any:
            about_to_end.wait()
            return super().create_local_plan()

    with context(str(storage.root)) as opened:
        writer = opened.checkpoint.dcp_writer(STEPS)
        dcp.async_save(state(), storage_writer=writer, planner=Waiting())  # type: ignore[attr-defined]
        assert writer.storage_id is None
        about_to_end.set()

    assert checkpoint_ids(storage) == [writer.storage_id]


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("step", ["create_local_plan", "resolve_data"])
def test_a_save_in_a_thread_beyond_the_grace_is_given_up(
    group: None, storage: DirectoryStorage, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """After a stop, leaving the Context waits for `async_save()` within the grace, and nothing is visible later."""
    monkeypatch.setenv("CORE_SDK_GRACE_S", "0.5")
    may_go_on = threading.Event()

    class Waiting(DefaultSavePlanner):
        def create_local_plan(self) -> Any:
            assert step != "create_local_plan" or may_go_on.wait()
            return super().create_local_plan()

        def resolve_data(self, write_item: Any) -> Any:
            assert step != "resolve_data" or may_go_on.wait()
            return super().resolve_data(write_item)

    try:
        with pytest.raises(GraceExceededError), context(str(storage.root), deadline=0.01) as opened:
            wait_for(opened.preempt.should_preempt)
            future = save_in_thread(opened, Waiting())
    finally:
        may_go_on.set()

    assert future.exception() is not None
    assert checkpoint_ids(storage) == []
    assert left_over(storage) == []


@pytest.mark.parametrize("step", ["beginning", "local plan", "global plan", "plan", "data"])
def test_leaving_the_context_waits_for_no_thread_whose_save_has_failed(
    group: None, storage: DirectoryStorage, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    """A pool's thread, which lives on, is not waited for, nor an `async_save()` that never began; words tell of it."""
    with ThreadPoolExecutor(1) as pool, context(str(storage.root)) as opened:
        with pytest.raises(CheckpointException, match=FAILS):
            pool.submit(save, opened, state(), FailingPlanner(0, step)).result()
        future = save_in_thread(opened, FailingPlanner(0, step))  # its error keeps the writer
        assert future.exception() is not None
        refused = save_in_thread(opened, checkpoint_id="x")
        assert "pass no checkpoint_id" in str(refused.exception())

    assert checkpoint_ids(storage) == []
    assert left_over(storage) == []
    if step != "data":  # a failure that the writer itself has seen is in `failed_save`
        assert "a thread that was to save by dcp_writer() has failed" in caplog.text


@promise("dcp-checkpoint-whole")
def test_a_flipped_bit_is_found(alone: core.Context, storage: DirectoryStorage) -> None:
    """Loading raises the error that names the damaged file, whichever file it is."""
    for name in (".metadata", "__0_0.distcp"):
        storage_id = save(alone, state())
        path = storage.root / storage_id / name
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)

        with pytest.raises(
            (CheckpointException, CheckpointDamagedError), match=rf"damaged.*{re.escape(name)}"
        ) as failure:
            load(alone, state(), storage_id)
        assert "metadata is None" not in str(failure.value)  # as torch says that has forgotten why


@promise("dcp-checkpoint-whole")
def test_a_failed_save_leaves_nothing(alone: core.Context, storage: DirectoryStorage) -> None:
    """A save that fails raises its cause, and nothing of it stays; the next save succeeds."""
    with pytest.raises(CheckpointException, match=FAILS):
        save(alone, state(), FailingPlanner(0, "data"))

    assert checkpoint_ids(storage) == []
    assert isinstance(alone.checkpoint.failed_save, OSError)
    save(alone, state())
    assert left_over(storage) == []


def test_mistakes_are_told(alone: core.Context, storage: DirectoryStorage, tmp_path: Path) -> None:
    """A second save, an id, missing steps, a process and a checkpoint of another kind are refused in words."""
    writer = alone.checkpoint.dcp_writer(STEPS)
    dcp.save(state(), storage_writer=writer)  # type: ignore[attr-defined]
    with pytest.raises(CheckpointException, match=r"has stored checkpoint .*: call dcp_writer\(\) for each save"):
        dcp.save(state(), storage_writer=writer)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="pass no checkpoint_id"):
        dcp.save(state(), storage_writer=alone.checkpoint.dcp_writer(STEPS), checkpoint_id="x")  # type: ignore[attr-defined]
    with pytest.raises(CheckpointException, match="steps_completed"):
        dcp.save(state(), storage_writer=alone.checkpoint.dcp_writer())  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"AsyncCheckpointerType\.THREAD"):
        alone.checkpoint.dcp_writer(STEPS).__getstate__()
    with alone.checkpoint.store_path(STEPS) as (path, plain):
        torch.save(state(), path / "model.pt")
    with pytest.raises((ValueError, CheckpointException), match=r"has no file \.metadata"):
        load(alone, state(), plain)
    assert len(checkpoint_ids(storage)) == 2
    assert writer.storage_id is not None
    with pytest.raises((ValueError, CheckpointException), match="weight"):
        load(alone, {"weight": torch.zeros(5, 5), "epoch": 0}, writer.storage_id)
    alone.checkpoint.delete(plain)
    with pytest.raises((CheckpointNotFoundError, CheckpointException), match=plain):
        load(alone, state(), plain)
    if "enable_plan_caching" in inspect.signature(DefaultSavePlanner).parameters:
        save(alone, state(), DefaultSavePlanner(enable_plan_caching=True))
        with pytest.raises(CheckpointException, match="plan of an earlier save"):
            save(alone, state(), DefaultSavePlanner(enable_plan_caching=True))
    assert left_over(storage) == []


@pytest.mark.parametrize("server_name", ["moto"])
def test_a_bucket_keeps_it(start_server: Callable[[str], BucketServer], server_name: str, monkeypatch: Any) -> None:
    """A checkpoint in a bucket is whole or absent, and a rank fetches only what it reads."""
    server = start_server(server_name)
    for name, value in server.variables().items():
        monkeypatch.setenv(name, value)
    with context(server.make_bucket()) as opened:
        storage_id = save(opened, state())
        with pytest.raises(CheckpointException, match=FAILS):
            save(opened, state(), FailingPlanner(0, "data"))
        loaded = {"weight": torch.zeros(8, 3), "epoch": 0}
        load(opened, loaded, storage_id)
        assert_loaded(loaded)
        assert [checkpoint.uuid for checkpoint in Tracker().list_checkpoints()] == [storage_id]
