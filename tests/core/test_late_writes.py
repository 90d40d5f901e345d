"""What is written when its checkpoint is stored already, or not at all, does not vanish without a word."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from core.rank_threads import Rank, Trial
from saving import checkpoint_ids

from core_sdk import core
from core_sdk._home import Home
from core_sdk._home.storage import DirectoryStorage

ASYNC_SAVE = """
import sys
import torch.distributed
import torch.distributed.checkpoint as dcp
from core_sdk import core

torch.distributed.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
with core.init() as context:
    state = {"weights": torch.ones(1000)}
    try:
        with context.checkpoint.store_path({"steps_completed": 1}, shard=True) as (path, _):
            future = dcp.async_save(state, checkpoint_id=path)
    except ValueError as error:
        print("REFUSED", error)
    with context.checkpoint.store_path({"steps_completed": 2}, shard=True) as (path, storage_id):
        dcp.async_save(state, checkpoint_id=path).result()
    print(storage_id)
torch.distributed.destroy_process_group()
"""


def test_a_checkpoint_of_all_ranks_without_a_file_is_refused_on_all(tmp_path: Path) -> None:
    """A sharded checkpoint without any file raises ValueError, even if it has empty directories."""
    trial = Trial(tmp_path / "trial", num_ranks=2)

    def script(rank: Rank) -> None:
        with rank.checkpoint.store_path({"steps_completed": 1}, shard=True) as (path, _):
            (path / f"rank{rank.number}").mkdir()

    outcomes = trial.attempt(script)

    assert {type(error) for error in outcomes.errors.values()} == {ValueError}
    assert "async_save" in str(outcomes.errors[0])
    assert checkpoint_ids(trial.storage) == []
    assert trial.left_over() == []


def test_a_rank_without_files_is_no_obstacle(tmp_path: Path) -> None:
    """A sharded checkpoint needs files from only one rank."""
    trial = Trial(tmp_path / "trial", num_ranks=2)

    def script(rank: Rank) -> str:
        with rank.checkpoint.store_path({"steps_completed": 1}, shard=True) as (path, storage_id):
            if rank.number == 1:
                (path / "model.bin").write_bytes(b"weights")
        return storage_id

    storage_id, _ = trial.run(script)

    trial.storage.verify(storage_id)


def test_metadata_alone_is_stored_and_said(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """A checkpoint of metadata alone is stored with a warning, since a script may need no files."""
    with core.init() as context, context.checkpoint.store_path({"steps_completed": 1}) as (_, storage_id):
        pass

    DirectoryStorage(home.checkpoints).verify(storage_id)
    assert f"checkpoint {storage_id} has metadata and no file" in caplog.text


@pytest.mark.parametrize("shard", [False, True])
def test_what_is_written_after_the_block_is_warned_of(home: Home, shard: bool) -> None:
    """Files that are written after the block are warned of once and removed; the checkpoint is unchanged."""
    with core.init() as context:
        for steps_completed in (1, 2):
            with context.checkpoint.store_path({"steps_completed": steps_completed}, shard=shard) as (path, storage_id):
                (path / "model.bin").write_bytes(b"weights")
            path.mkdir(parents=True)
            (path / "late.bin").write_bytes(b"more")

            with pytest.warns(RuntimeWarning, match=f"no part of checkpoint {storage_id}"):
                context.checkpoint.close()
    with core.init():
        pass

    storage = DirectoryStorage(home.checkpoints)
    assert all(
        storage.verify(storage_id).files.keys() == {"model.bin", "metadata.json"}
        for storage_id in checkpoint_ids(storage)
    )
    assert list((storage.root / ".staging").iterdir()) == []


def test_an_async_save_that_is_not_awaited_is_no_checkpoint(
    home: Home, tmp_path: Path, run_script: Callable[..., tuple[int, str, str]]
) -> None:
    """A checkpoint whose async save was not awaited is refused, and one that was awaited is stored."""
    status, output, errors = run_script(ASYNC_SAVE, str(tmp_path / "rendezvous"))

    assert status == 0, errors
    kept = output.splitlines()[-1]
    storage = DirectoryStorage(home.checkpoints)
    assert kept in checkpoint_ids(storage)
    for storage_id in checkpoint_ids(storage):
        assert any(name.endswith(".distcp") for name in storage.verify(storage_id).files)
