"""`core_context.checkpoint`: stored whole and recorded, or refused before anything is written."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from promises import promise
from saving import checkpoint_ids
from stage import stored_ids

from core_sdk import core
from core_sdk._distributed import DistributedContext
from core_sdk._ground.records import CheckpointDeleted, CheckpointPruned, CheckpointStored, Record, from_json
from core_sdk._home import Home
from core_sdk._home.history import read_history
from core_sdk._home.journal import JournalWriter, read_records
from core_sdk._home.storage import DirectoryStorage, storage_from_url
from core_sdk._home.storages import storage_url
from core_sdk.errors import CheckpointDamagedError, CheckpointNotFoundError, JournalError, UnsafePathError

UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"


class Worker(DistributedContext):
    """A rank that is not the chief, as trials of several ranks will have them."""

    @property
    def is_chief(self) -> bool:
        return False


@pytest.fixture
def context() -> Iterator[core.Context]:
    with core.init(name="checkpoints") as context:
        yield context


@pytest.fixture
def checkpoint(context: core.Context) -> core.CheckpointContext:
    return context.checkpoint


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "optimizer").mkdir(parents=True)
    (source / "model.bin").write_bytes(b"12345678")
    (source / "optimizer" / "state.bin").write_bytes(b"12")
    return source


def recorded(home: Home) -> list[CheckpointStored | CheckpointDeleted]:
    return [record for record in journal(home) if isinstance(record, (CheckpointStored, CheckpointDeleted))]


def journal(home: Home) -> list[Record]:
    return list(read_records(home.runs / "1" / "1.journal"))


def test_store_path_and_restore_path(checkpoint: core.CheckpointContext) -> None:
    """A state dict that was written in store_path() is read back in restore_path()."""
    state = {"weight": torch.arange(12.0).reshape(3, 4)}

    with checkpoint.store_path({"steps_completed": 3}) as (path, storage_id):
        torch.save(state, path / "state.pt")
    with checkpoint.restore_path(storage_id) as path:
        restored = torch.load(path / "state.pt", weights_only=True)

    assert torch.equal(restored["weight"], state["weight"])
    assert checkpoint.get_metadata(storage_id) == {"steps_completed": 3}


def test_upload_and_download(checkpoint: core.CheckpointContext, source: Path, tmp_path: Path) -> None:
    """Directories may be given as strings or paths, and an upload leaves its source unchanged."""
    storage_id = checkpoint.upload(str(source), {"steps_completed": 3})
    checkpoint.download(storage_id, tmp_path / "copy", download_mode=core.DownloadMode.NoSharedDownload)

    assert (tmp_path / "copy" / "optimizer" / "state.bin").read_bytes() == b"12"
    assert sorted(path.name for path in source.rglob("*")) == ["model.bin", "optimizer", "state.bin"]


def test_a_stored_checkpoint_is_recorded(checkpoint: core.CheckpointContext, home: Home, source: Path) -> None:
    """The record holds the metadata, the files and the storage of the checkpoint."""
    metadata = {"steps_completed": np.int64(3), "loss": math.nan, "shape": (2, 3)}

    storage_id = checkpoint.upload(source, metadata)

    (record,) = recorded(home)
    assert isinstance(record, CheckpointStored)
    assert (record.storage_id, record.steps_completed) == (storage_id, 3)
    assert record.resources.keys() == {"metadata.json", "model.bin", "optimizer/", "optimizer/state.bin"}
    assert record.resources["model.bin"] == 8
    storage_from_url(storage_url(home, record.storage, storage_id)).verify(storage_id)
    read_back = from_json(record.metadata)
    assert math.isnan(read_back.pop("loss"))
    assert read_back == {"steps_completed": 3, "shape": [2, 3]}


def test_metadata_may_grow_inside_the_block(checkpoint: core.CheckpointContext) -> None:
    """Metadata that is added to the dict inside the block is stored."""
    metadata: dict[str, Any] = {"steps_completed": 3}

    with checkpoint.store_path(metadata) as (_, storage_id):
        metadata["loss"] = np.float32(0.5)

    assert checkpoint.get_metadata(storage_id) == {"steps_completed": 3, "loss": 0.5}


@pytest.mark.parametrize(
    "metadata",
    [
        {"steps_completed": 0},
        {"steps_completed": 2**63 - 1},
        {"steps_completed": np.int32(5)},
        {"steps_completed": torch.tensor(5)},
        {"steps_completed": 5, "nested": {"a": [1, None, True, -0.0, "x"], "": {}}, "inf": -math.inf},
    ],
)
def test_metadata_round_trips(checkpoint: core.CheckpointContext, metadata: dict[str, Any]) -> None:
    """Metadata is read back as equal Python values."""
    with checkpoint.store_path(metadata) as (_, storage_id):
        pass

    assert checkpoint.get_metadata(storage_id) == metadata


@pytest.mark.parametrize(
    ("metadata", "error", "message"),
    [
        (None, ValueError, "steps_completed.*missing"),
        ({}, ValueError, "steps_completed.*missing"),
        ({"steps": 3}, ValueError, "steps_completed.*missing"),
        ({"steps_completed": -1}, ValueError, "-1"),
        ({"steps_completed": 1.0}, ValueError, r"1\.0"),
        ({"steps_completed": True}, ValueError, "True"),
        ({"steps_completed": "3"}, ValueError, "'3'"),
        ({"steps_completed": None}, ValueError, "None"),
        ({"steps_completed": 2**63}, ValueError, str(2**63)),
        ({"steps_completed": 3, "model": object()}, TypeError, "metadata\\['model'\\] is a object"),
        ({"steps_completed": 3, 4: 5}, TypeError, "key 4"),
    ],
)
def test_bad_metadata_is_refused_before_anything_is_written(
    checkpoint: core.CheckpointContext, home: Home, source: Path, metadata: Any, error: type[Exception], message: str
) -> None:
    """Bad metadata raises at the call, not after hours in the block."""
    with pytest.raises(error, match=message):
        checkpoint.store_path(metadata)
    with pytest.raises(error, match=message):
        checkpoint.upload(source, metadata)

    assert stored_ids(home) == []
    assert recorded(home) == []


def test_metadata_spoiled_inside_the_block_stores_nothing(checkpoint: core.CheckpointContext, home: Home) -> None:
    """Metadata is checked again at the end of the block."""
    metadata: dict[str, Any] = {"steps_completed": 3}

    with pytest.raises(ValueError, match="steps_completed"), checkpoint.store_path(metadata) as (path, _):
        (path / "model.bin").write_bytes(b"1234")
        del metadata["steps_completed"]

    assert stored_ids(home) == []
    assert recorded(home) == []


def test_a_block_that_raises_stores_and_records_nothing(checkpoint: core.CheckpointContext, home: Home) -> None:
    """The script's own error is raised, and no files are left."""
    with pytest.raises(ZeroDivisionError), checkpoint.store_path({"steps_completed": 3}) as (path, _):
        (path / "model.bin").write_bytes(b"1234")
        raise ZeroDivisionError

    assert stored_ids(home) == []
    assert recorded(home) == []
    assert list((home.checkpoints / ".staging").iterdir()) == []


def test_reserved_names_are_refused(checkpoint: core.CheckpointContext, home: Home, source: Path) -> None:
    """A source that contains metadata.json is refused and left unchanged."""
    (source / "metadata.json").write_text("mine")

    with pytest.raises(ValueError, match=r"'metadata\.json'"):
        checkpoint.upload(source, {"steps_completed": 3})

    assert (source / "metadata.json").read_text() == "mine"
    assert recorded(home) == []


def test_selectors(checkpoint: core.CheckpointContext, source: Path, tmp_path: Path) -> None:
    """Selectors apply to uploads, downloads and restores; they see directories with "/" and never see metadata."""
    asked: list[str] = []

    def only_model(name: str) -> bool:
        asked.append(name)
        return name == "model.bin"

    all_of_it = checkpoint.upload(source, {"steps_completed": 3})
    some_of_it = checkpoint.upload(source, {"steps_completed": 3}, selector=only_model)
    checkpoint.download(all_of_it, tmp_path / "copy", selector=only_model)
    (home_of(checkpoint) / all_of_it / "optimizer" / "state.bin").write_bytes(b"xx")

    with checkpoint.restore_path(some_of_it) as path:
        assert {name.name for name in path.iterdir()} == {"model.bin", "metadata.json", ".manifest.json"}
    with checkpoint.restore_path(all_of_it, selector=only_model) as path:
        assert (path / "model.bin").read_bytes() == b"12345678"
    assert {path.name for path in (tmp_path / "copy").iterdir()} == {"model.bin", "metadata.json", ".manifest.json"}
    assert set(asked) == {"model.bin", "optimizer/", "optimizer/state.bin"}


def home_of(checkpoint: core.CheckpointContext) -> Path:
    assert isinstance(checkpoint._storage, DirectoryStorage)
    return checkpoint._storage.root


def test_a_damaged_checkpoint_is_refused_by_file(
    checkpoint: core.CheckpointContext, home: Home, source: Path, tmp_path: Path
) -> None:
    """Both restore_path() and download() name the damaged file."""
    storage_id = checkpoint.upload(source, {"steps_completed": 3})
    (home.checkpoints / storage_id / "optimizer" / "state.bin").write_bytes(b"13")

    with pytest.raises(CheckpointDamagedError, match=r"optimizer/state\.bin") as restored:
        checkpoint.restore_path(storage_id).__enter__()
    with pytest.raises(CheckpointDamagedError, match=r"optimizer/state\.bin"):
        checkpoint.download(storage_id, tmp_path / "copy")

    assert restored.value.storage_id == storage_id
    assert not (tmp_path / "copy" / "optimizer" / "state.bin").exists()


def test_delete_is_recorded(checkpoint: core.CheckpointContext, home: Home, source: Path) -> None:
    """A deletion is recorded, and a second deletion raises CheckpointNotFoundError."""
    storage_id = checkpoint.upload(source, {"steps_completed": 3})
    kept_id = checkpoint.upload(source, {"steps_completed": 4})

    checkpoint.delete(storage_id)

    assert stored_ids(home) == [kept_id]
    assert isinstance(recorded(home)[-1], CheckpointDeleted)
    assert recorded(home)[-1].storage_id == storage_id
    with pytest.raises(CheckpointNotFoundError):
        checkpoint.delete(storage_id)
    assert len(recorded(home)) == 3


def test_a_part_can_be_deleted(checkpoint: core.CheckpointContext, home: Home, source: Path, tmp_path: Path) -> None:
    """After a partial deletion the rest is still verified, and the journal lists what is left."""
    storage_id = checkpoint.upload(source, {"steps_completed": 3})

    checkpoint.delete(storage_id, globs=["nothing/*"])
    checkpoint.delete(storage_id, globs=["optimizer"])

    checkpoint.download(storage_id, tmp_path / "copy")
    assert (tmp_path / "copy" / "model.bin").read_bytes() == b"12345678"
    assert not (tmp_path / "copy" / "optimizer").exists()
    (pruned,) = [record for record in journal(home) if isinstance(record, CheckpointPruned)]
    assert pruned.resources.keys() == {"model.bin", "metadata.json"}


def test_a_checkpoint_of_which_every_file_was_deleted_is_gone(
    checkpoint: core.CheckpointContext, home: Home, source: Path
) -> None:
    """Deleting every file deletes the checkpoint, as its metadata alone would be useless."""
    storage_id = checkpoint.upload(source, {"steps_completed": 3})

    checkpoint.delete(storage_id, globs=["*"])

    assert stored_ids(home) == []
    assert isinstance(recorded(home)[-1], CheckpointDeleted)
    with pytest.raises(TypeError, match="globs"):
        checkpoint.delete(storage_id, globs="*")


CALLS: list[Callable[[core.CheckpointContext, str], object]] = [
    lambda checkpoint, storage_id: checkpoint.get_metadata(storage_id),
    lambda checkpoint, storage_id: checkpoint.download(storage_id, "copy"),
    lambda checkpoint, storage_id: checkpoint.restore_path(storage_id).__enter__(),
    lambda checkpoint, storage_id: checkpoint.delete(storage_id),
]


@promise("paths-stay-inside")
@pytest.mark.parametrize("call", CALLS, ids=["get_metadata", "download", "restore_path", "delete"])
def test_unknown_and_hostile_ids(
    checkpoint: core.CheckpointContext, home: Home, source: Path, call: Callable[[core.CheckpointContext, str], object]
) -> None:
    """An unknown one is named; an empty one or one that points elsewhere touches nothing."""
    storage_id = checkpoint.upload(source, {"steps_completed": 3})

    with pytest.raises(CheckpointNotFoundError, match=UNKNOWN_ID):
        call(checkpoint, UNKNOWN_ID)
    for hostile in ("", ".", "..", "../runs", str(home.checkpoints / storage_id), f"{storage_id}/optimizer"):
        with pytest.raises(UnsafePathError, match="the storage id"):
            call(checkpoint, hostile)

    assert stored_ids(home) == [storage_id]
    assert len(recorded(home)) == 1


def test_a_rank_that_is_not_the_chief_is_refused_at_the_call(tmp_path: Path, source: Path) -> None:
    """A rank other than the chief is refused at the call, before it saves anything."""
    journal = JournalWriter(tmp_path / "1.journal")
    checkpoint = core.CheckpointContext(DirectoryStorage(tmp_path / "checkpoints"), Worker(), journal)

    with pytest.raises(RuntimeError, match="shard=True"):
        checkpoint.store_path({"steps_completed": 3})
    with pytest.raises(RuntimeError, match="shard=True"):
        checkpoint.upload(source, {"steps_completed": 3})

    journal.close()
    assert not (tmp_path / "checkpoints").exists()


def test_one_rank_is_all_shards(checkpoint: core.CheckpointContext, home: Home, source: Path) -> None:
    """A script written for many ranks runs on one."""
    uploaded = checkpoint.upload(source, {"steps_completed": 3}, shard=True)
    with checkpoint.store_path({"steps_completed": 4}, shard=True) as (path, stored):
        (path / "rank0.bin").write_bytes(b"1234")

    assert stored_ids(home) == sorted([uploaded, stored])
    for shard in (True, False):
        with pytest.raises(RuntimeError, match="ckpt_dir"):
            checkpoint.upload(None, {"steps_completed": 3}, shard=shard)


def test_download_modes_are_those_that_scripts_know(
    checkpoint: core.CheckpointContext, source: Path, tmp_path: Path
) -> None:
    """Download modes may be given by their values; an unknown mode is refused."""
    storage_id = checkpoint.upload(source, {"steps_completed": 3})

    assert core.DownloadMode.LocalWorkersShareDownload.value == "LOCAL_WORKERS_SHARE_DOWNLOAD"
    assert core.DownloadMode.NoSharedDownload.value == "NO_SHARED_DOWNLOAD"
    mode: Any = "NO_SHARED_DOWNLOAD"
    checkpoint.download(storage_id, tmp_path / "copy", mode)
    assert (tmp_path / "copy" / "model.bin").exists()
    mode = "SOMEHOW"
    with pytest.raises(ValueError, match="SOMEHOW"):
        checkpoint.restore_path(storage_id, mode)


def test_checkpoints_go_where_they_are_told(tmp_path: Path, home: Home) -> None:
    """`checkpoint_storage` chooses the directory of the checkpoints."""
    storage = {"type": "directory", "container_path": str(tmp_path / "elsewhere")}

    with (
        core.init(name="elsewhere", checkpoint_storage=storage) as context,
        context.checkpoint.store_path({"steps_completed": 3}) as (path, storage_id),
    ):
        (path / "model.bin").write_bytes(b"1234")

    assert (tmp_path / "elsewhere" / storage_id / "model.bin").read_bytes() == b"1234"
    assert stored_ids(home) == []
    (record,) = recorded(home)
    assert isinstance(record, CheckpointStored)
    assert record.storage == (tmp_path / "elsewhere").as_uri()


@pytest.mark.parametrize("mode", list(core.DownloadMode))
def test_a_checkpoint_is_found_where_it_was_stored_though_the_storage_has_changed(
    tmp_path: Path, home: Home, mode: core.DownloadMode
) -> None:
    """A checkpoint of this trial or another one can be read after the storage was changed."""
    for job_id in ("other", "one"):
        with (
            core.init(checkpoint_storage=str(tmp_path / "before"), job_id=job_id) as context,
            context.checkpoint.store_path({"steps_completed": 1}) as (path, _),
        ):
            (path / "model.bin").write_text(job_id)
    (of_other,) = (each.record.storage_id for each in read_history(home.folder(1)).checkpoints)

    with core.init(job_id="one") as context:
        own = context.info.latest_checkpoint
        assert own is not None
        contents = []
        for storage_id in (own, of_other):
            with context.checkpoint.restore_path(storage_id, mode) as path:
                contents.append((path / "model.bin").read_bytes())
            context.checkpoint.download(storage_id, tmp_path / storage_id, mode)
        metadata = context.checkpoint.get_metadata(own)
        context.checkpoint.delete(own)
        with context.checkpoint.store_path({"steps_completed": 2}) as (path, newer):
            (path / "model.bin").write_bytes(b"newer")
    with core.init(checkpoint_storage=str(tmp_path / "before"), job_id="one") as context:
        assert context.info.latest_checkpoint == newer
        with context.checkpoint.restore_path(newer, mode) as path:
            contents.append((path / "model.bin").read_bytes())

    assert contents == [b"one", b"other", b"newer"]
    assert (tmp_path / of_other / "model.bin").read_bytes() == b"other"
    assert metadata["steps_completed"] == 1
    assert checkpoint_ids(DirectoryStorage(tmp_path / "before")) == [of_other]


def test_nothing_is_stored_or_deleted_that_cannot_be_recorded(home: Home, source: Path) -> None:
    """After the end of the Context, saves and deletions are refused, since they could not be recorded."""
    with core.init() as context:
        kept = context.checkpoint.upload(source, {"steps_completed": 1})

    with pytest.raises(JournalError, match="is closed"):
        context.checkpoint.upload(source, {"steps_completed": 2})
    with pytest.raises(JournalError, match="is closed"), context.checkpoint.store_path({"steps_completed": 2}):
        pass
    with pytest.raises(JournalError, match="is closed"):
        context.checkpoint.delete(kept)

    assert stored_ids(home) == [kept]


def test_a_child_forked_in_the_block_does_not_store(checkpoint: core.CheckpointContext, home: Home) -> None:
    """A forked child that leaves the block stores nothing, since the parent is still writing."""
    block = checkpoint.store_path({"steps_completed": 1})
    path, storage_id = block.__enter__()
    (path / "model.bin").write_bytes(b"half")
    child = os.fork()
    if child == 0:
        try:
            block.__exit__(None, None, None)
        except JournalError:
            os._exit(42)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    ids_after_child = stored_ids(home)
    (path / "model.bin").write_bytes(b"whole")
    block.__exit__(None, None, None)

    assert os.waitstatus_to_exitcode(status) == 42
    assert ids_after_child == []
    with checkpoint.restore_path(storage_id) as restored:
        assert (restored / "model.bin").read_bytes() == b"whole"
