"""Checkpoints: their names always arrive, and their files if that is asked for."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from home.journals import new_trial, record, stored
from workspace.workspaces import pushed, served

from core_sdk import core
from core_sdk._home import Home, open_view
from core_sdk._home.storage import DirectoryStorage
from core_sdk._workspace.connection import WorkspaceConnection
from core_sdk._workspace.receiving import RecordReceiver
from core_sdk._workspace.wire import PIECE_BYTES, AskedCheckpoint, Extent, piece_of

SIZE_BYTES = 2 * PIECE_BYTES + 1000


@pytest.fixture
def workspace(tmp_path: Path) -> Home:
    return Home.create(tmp_path / "lab")


def train() -> str:
    """Trains and saves a checkpoint of three parts, and returns its id."""
    with core.init(name="digits") as ctx:
        ctx.train.report_training_metrics(steps_completed=1, metrics={"loss": 1.0})
        with ctx.checkpoint.store_path({"steps_completed": 1}) as (path, storage_id):
            (path / "model").mkdir()
            (path / "model" / "weights.bin").write_bytes(os.urandom(SIZE_BYTES))
            (path / "empty").touch()
    return storage_id


def test_only_the_name_arrives_unless_files_are_asked_for(home: Home, workspace: Home) -> None:
    """The workspace lists the checkpoint, and has no files of it."""
    storage_id = train()

    with served(workspace) as url:
        pushed(home, url)

    with open_view(workspace) as view:
        assert [row.storage_id for row in view.checkpoints()] == [storage_id]
    assert not (workspace.checkpoints / storage_id).exists()


def test_files_arrive_verified(home: Home, workspace: Home) -> None:
    """The checkpoint in the workspace has the files of the home's, and a second push sends nothing."""
    storage_id = train()

    with served(workspace) as url:
        first = pushed(home, url, with_checkpoints=True).pushed
        second = pushed(home, url, with_checkpoints=True).pushed

    DirectoryStorage(workspace.checkpoints).verify(storage_id)
    name = Path(storage_id) / "model" / "weights.bin"
    assert (workspace.checkpoints / name).read_bytes() == (home.checkpoints / name).read_bytes()
    assert (first.num_bytes > SIZE_BYTES, second.num_bytes, first.problems) == (True, 0, [])


def test_a_transfer_that_was_cut_off_continues(home: Home, workspace: Home) -> None:
    """What has arrived of a file is not sent again."""
    storage_id = train()
    name = "model/weights.bin"
    content = (home.checkpoints / storage_id / name).read_bytes()

    with served(workspace) as url:
        pushed(home, url)
        with WorkspaceConnection(url) as connection:
            connection.checkpoint(AskedCheckpoint(1, storage_id))
            whole = Extent(len(content), 0)
            connection.send([piece_of(1, f"checkpoints/{storage_id}/{name}", 0, content[:PIECE_BYTES], whole)])
        rest = pushed(home, url, with_checkpoints=True).pushed

    DirectoryStorage(workspace.checkpoints).verify(storage_id)
    assert SIZE_BYTES - PIECE_BYTES <= rest.num_bytes < SIZE_BYTES


def test_damaged_files_are_not_stored(home: Home, workspace: Home) -> None:
    """The push names the checkpoint, and the next one sends it again."""
    storage_id = train()
    name = "model/weights.bin"
    content = (home.checkpoints / storage_id / name).read_bytes()

    with served(workspace) as url:
        pushed(home, url)
        with WorkspaceConnection(url) as connection:
            connection.checkpoint(AskedCheckpoint(1, storage_id))
            damaged = bytes([content[0] ^ 1]) + content[1:PIECE_BYTES]
            piece = piece_of(1, f"checkpoints/{storage_id}/{name}", 0, damaged, Extent(len(content), 0))
            connection.send([piece])
        first = pushed(home, url, with_checkpoints=True).pushed
        assert not (workspace.checkpoints / storage_id).exists()
        second = pushed(home, url, with_checkpoints=True).pushed

    assert len(first.problems) == 1 and storage_id in first.problems[0]
    assert second.problems == []
    DirectoryStorage(workspace.checkpoints).verify(storage_id)


def test_directories_that_a_record_names_stay_inside(workspace: Home) -> None:
    """The record has come from another machine, and may say anything."""
    record(new_trial(workspace), msgspec.structs.replace(stored("a", 1), resources={"../../outside/": 0}))
    receiver = RecordReceiver(workspace)

    begun = receiver.checkpoint(1, "a", is_complete=False)
    arrival = receiver.checkpoint(1, "a", is_complete=True)

    assert (begun.problem, arrival.is_stored, "outside" in arrival.problem) == ("", False, True)
    assert not (workspace.root / "outside").exists()
