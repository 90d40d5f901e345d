"""Checkpoints in a directory: what is stored comes back, or is named as damaged, or was never there."""

from __future__ import annotations

import errno
import math
import os
import random
import re
import shutil
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import google_crc32c
import pytest
from processes import wait_for
from promises import promise
from saving import checkpoint_ids, store_alone, upload
from stage import staged

from core_sdk._ground.records import MANIFEST_NAME, Manifest, decode_manifest, encode_manifest, from_json
from core_sdk._home.storage import METADATA_NAME, DirectoryStorage
from core_sdk.errors import (
    CheckpointDamagedError,
    CheckpointNotFoundError,
    CheckpointNotStoredError,
    CheckpointTooNewError,
    NotEnoughSpaceError,
    UnsafePathError,
)

METADATA = {"steps_completed": 7, "loss": math.inf}


@pytest.fixture
def storage(tmp_path: Path) -> DirectoryStorage:
    return DirectoryStorage(tmp_path / "checkpoints")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A directory as a script might upload it."""
    source = tmp_path / "source"
    (source / "optimizer" / "empty").mkdir(parents=True)
    (source / "model.bin").write_bytes(random.Random(1).randbytes(20_000))
    (source / "optimizer" / "state.bin").write_bytes(random.Random(2).randbytes(300))
    (source / "nothing").write_bytes(b"")
    return source


def tree(directory: Path) -> dict[str, bytes | None]:
    """Returns the content of all files and the directories, without metadata and manifest."""
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None
        for path in directory.rglob("*")
        if path.name not in (METADATA_NAME, MANIFEST_NAME)
    }


def edit_manifest(storage: DirectoryStorage, storage_id: str, edit: Callable[[Manifest], Manifest]) -> None:
    path = storage.root / storage_id / MANIFEST_NAME
    path.write_bytes(encode_manifest(edit(decode_manifest(path.read_bytes()))))


def test_what_was_uploaded_comes_back(storage: DirectoryStorage, source: Path, tmp_path: Path) -> None:
    """Files, empty files and empty directories, byte by byte; and the source is left as it was."""
    before = tree(source)

    manifest = upload(storage, "a", source, METADATA)
    storage.download("a", tmp_path / "copy")
    with storage.open("a") as path:
        opened = tree(path)

    assert opened == tree(tmp_path / "copy") == tree(source) == before
    assert manifest == storage.manifest("a") == storage.verify("a")
    assert manifest.resources == {
        "metadata.json": (storage.root / "a" / "metadata.json").stat().st_size,
        "model.bin": 20_000,
        "nothing": 0,
        "optimizer/": 0,
        "optimizer/empty/": 0,
        "optimizer/state.bin": 300,
    }
    assert from_json(manifest.metadata) == METADATA
    assert staged(storage) == []


def test_a_manifest_with_a_second_hash_of_each_file_is_read(storage: DirectoryStorage, source: Path) -> None:
    """Earlier versions have written `xxh128` into each entry. It is ignored, and a partial deletion drops it."""
    upload(storage, "a", source, METADATA)
    path = storage.root / "a" / MANIFEST_NAME
    body = encode_manifest(storage.manifest("a")).decode().partition(',"manifest":')[2][:-1]
    body = re.sub(r'("crc32c":"[0-9a-f]{8}")(?=\})', rf'\1,"xxh128":"{"0" * 32}"', body)
    path.write_text(f'{{"crc32c":"{google_crc32c.value(body.encode()):08x}","manifest":{body}}}')

    manifest = storage.verify("a")
    storage.delete("a", ["model.bin"])

    assert body.count("xxh128") == len(manifest.files) > 2
    assert storage.verify("a").files.keys() == manifest.files.keys() - {"model.bin"}
    assert "xxh128" not in path.read_text()


def test_metadata_is_strict_json(storage: DirectoryStorage) -> None:
    """metadata.json is strict JSON, also with infinities."""
    with storage.stage("a") as staging:
        store_alone(staging, METADATA)

    text = (storage.root / "a" / METADATA_NAME).read_text()
    assert '"loss": {\n    "$float": "Infinity"\n  }' in text


@promise("checkpoint-whole")
def test_a_checkpoint_is_invisible_until_it_is_whole(storage: DirectoryStorage) -> None:
    """A checkpoint is neither listed nor opened before its commit."""
    with storage.stage("a") as staging:
        (staging.path / "model.bin").write_bytes(b"1234")
        assert checkpoint_ids(storage) == []
        with pytest.raises(CheckpointNotFoundError):
            storage.manifest("a")
        store_alone(staging, METADATA)
        assert checkpoint_ids(storage) == ["a"]
    assert checkpoint_ids(storage) == ["a"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_save_that_raises_leaves_nothing(storage: DirectoryStorage, error: type[BaseException]) -> None:
    """A block that raises leaves no files."""
    with pytest.raises(error), storage.stage("a") as staging:
        (staging.path / "model.bin").write_bytes(b"1234")
        raise error

    assert checkpoint_ids(storage) == []
    assert staged(storage) == []


def test_two_checkpoints_cannot_share_an_id(storage: DirectoryStorage) -> None:
    """A second checkpoint of the same id is refused, and the first is unchanged."""
    with storage.stage("a") as staging:
        (staging.path / "model.bin").write_bytes(b"first")
        store_alone(staging, METADATA)

    with pytest.raises(CheckpointNotStoredError, match="a was not stored"), storage.stage("a") as staging:
        store_alone(staging, METADATA)

    storage.verify("a")
    assert (storage.root / "a" / "model.bin").read_bytes() == b"first"
    assert staged(storage) == []


def test_a_forked_child_does_not_discard_its_parents_files(storage: DirectoryStorage) -> None:
    """A forked child that leaves the block does not remove its parent's files."""
    with storage.stage("a") as staging:
        (staging.path / "model.bin").write_bytes(b"1234")
        child = os.fork()
        if child == 0:
            staging.discard()
            os._exit(0)
        os.waitpid(child, 0)
        store_alone(staging, METADATA)

    storage.verify("a")


def test_selectors_choose_what_is_uploaded(storage: DirectoryStorage, source: Path) -> None:
    """A selector chooses the uploaded files, whose directories are included."""
    asked = []

    def selector(name: str) -> bool:
        asked.append(name)
        return name == "optimizer/state.bin"

    manifest = upload(storage, "a", source, METADATA, selector)

    assert set(manifest.resources) == {"metadata.json", "optimizer/", "optimizer/state.bin"}
    assert sorted(asked) == ["model.bin", "nothing", "optimizer/", "optimizer/empty/", "optimizer/state.bin"]


def test_selectors_choose_what_is_downloaded(storage: DirectoryStorage, source: Path, tmp_path: Path) -> None:
    """A selector chooses the downloaded files; metadata and manifest are always included."""
    upload(storage, "a", source, METADATA)

    storage.download("a", tmp_path / "copy", lambda name: name == "model.bin")

    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == [MANIFEST_NAME, METADATA_NAME, "model.bin"]


def test_with_a_selector_only_selected_files_are_verified(storage: DirectoryStorage, source: Path) -> None:
    """With a selector only the selected files are verified."""
    upload(storage, "a", source, METADATA)
    (storage.root / "a" / "model.bin").write_bytes(b"damaged")

    with storage.open("a", lambda name: name.startswith("optimizer/")) as path:
        assert (path / "optimizer" / "state.bin").exists()
    with pytest.raises(CheckpointDamagedError, match=r"model\.bin"), storage.open("a", lambda name: True):
        pass


def test_a_download_goes_on_where_it_stopped(storage: DirectoryStorage, source: Path, tmp_path: Path) -> None:
    """A repeated download copies only files that are missing or wrong."""
    upload(storage, "a", source, METADATA)
    copy = tmp_path / "copy"
    storage.download("a", copy)
    (copy / "model.bin").write_bytes(bytes(20_000))
    whole_before = (copy / "optimizer" / "state.bin").stat()

    storage.download("a", copy)

    assert tree(copy) == tree(source)
    assert (copy / "optimizer" / "state.bin").stat().st_ino == whole_before.st_ino


def test_a_damaged_file_never_gets_its_name_in_a_download(
    storage: DirectoryStorage, source: Path, tmp_path: Path
) -> None:
    """A damaged file is named, and the download gets neither that file nor a manifest."""
    upload(storage, "a", source, METADATA)
    flip_bit(storage.root / "a" / "model.bin", 4711)

    with pytest.raises(CheckpointDamagedError) as raised:
        storage.download("a", tmp_path / "copy")

    assert raised.value.file == "model.bin"
    left = {path.name for path in (tmp_path / "copy").rglob("*")}
    assert left <= {METADATA_NAME, "nothing", "optimizer", "empty", "state.bin"}


def test_a_download_into_the_storage_is_refused(storage: DirectoryStorage, source: Path) -> None:
    """A download into the storage itself is refused."""
    upload(storage, "a", source, METADATA)

    for directory in (storage.root, storage.root / "a", storage.root / "b"):
        with pytest.raises(UnsafePathError, match="inside the storage"):
            storage.download("a", directory)

    storage.verify("a")


def test_a_downloaded_checkpoint_can_be_uploaded(storage: DirectoryStorage, source: Path, tmp_path: Path) -> None:
    """A downloaded checkpoint can be uploaded again with new metadata."""
    upload(storage, "a", source, METADATA)
    storage.download("a", tmp_path / "copy")

    manifest = upload(storage, "b", tmp_path / "copy", {"steps_completed": 8})

    assert manifest.metadata == {"steps_completed": 8}
    assert tree(storage.root / "b") == tree(source)


@pytest.mark.parametrize("name", [METADATA_NAME, MANIFEST_NAME])
def test_our_names_are_reserved(storage: DirectoryStorage, source: Path, name: str) -> None:
    """A user's file of that name is refused, not overwritten; deeper down the name is free."""
    (source / "optimizer" / name).write_text("mine")
    upload(storage, "a", source, METADATA)
    (source / name).write_text("mine")

    with pytest.raises(ValueError, match=name.replace(".", r"\.")):
        upload(storage, "b", source, METADATA)
    with pytest.raises(ValueError, match="Core SDK's own"), storage.stage("b") as staging:
        (staging.path / name).mkdir()
        store_alone(staging, METADATA)

    assert checkpoint_ids(storage) == ["a"]
    assert (source / name).read_text() == "mine"
    assert (storage.root / "a" / "optimizer" / name).read_text() == "mine"


def test_a_link_to_a_file_inside_is_kept_as_that_file(storage: DirectoryStorage, source: Path) -> None:
    """A relative, absolute or chained link to a file of the checkpoint is stored as a copy of that file."""
    (source / "latest").symlink_to("model.bin")
    (source / "optimizer" / "up").symlink_to("../latest")
    (source / "absolute").symlink_to(source / "model.bin")
    (source.parent / "alias").symlink_to(source)

    upload(storage, "a", source.parent / "alias", METADATA)
    with storage.stage("b") as staging:
        (staging.path / "model.bin").write_bytes(b"1234")
        (staging.path / "latest").symlink_to("model.bin")
        store_alone(staging, METADATA)

    for name in ("latest", "optimizer/up", "absolute"):
        stored = storage.root / "a" / name
        assert not stored.is_symlink()
        assert stored.read_bytes() == (source / "model.bin").read_bytes()
    assert not (storage.root / "b" / "latest").is_symlink()
    assert (storage.root / "b" / "latest").read_bytes() == b"1234"
    storage.verify("b")


def test_a_reader_waits_for_a_process_that_only_looks_whether_it_may_delete(
    storage: DirectoryStorage, source: Path
) -> None:
    """A reader waits for a process that only checks whether it may delete the checkpoint."""
    upload(storage, "a", source, METADATA)

    with ThreadPoolExecutor(1) as executor:
        with DirectoryStorage(storage.root).deleting("a"):
            verified = executor.submit(storage.verify, "a")
            wait_for(lambda: verified.running())
        assert verified.result().storage_id == "a"


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: path.symlink_to("/etc/passwd"), "outside"),
        (lambda path: path.symlink_to("../../secret"), "nowhere|outside"),
        (lambda path: path.symlink_to("missing"), "nowhere"),
        (lambda path: path.symlink_to(path.name), "nowhere"),
        (lambda path: path.symlink_to("."), "directory"),
        (lambda path: path.symlink_to(".."), "outside"),
        (make_pipe, "not a regular file"),
    ],
    ids=["outside", "up", "dangling", "loop", "directory", "parent", "pipe"],
)
def test_what_is_no_file_of_its_own_is_refused(
    storage: DirectoryStorage, source: Path, make: Callable[[Path], None], problem: str
) -> None:
    """Links that lead outside or in circles, and special files, both in an upload and in a staged directory."""
    make(source / "odd")

    with pytest.raises(UnsafePathError, match=problem):
        upload(storage, "a", source, METADATA)
    with pytest.raises(UnsafePathError, match=problem), storage.stage("a") as staging:
        make(staging.path / "odd")
        store_alone(staging, METADATA)

    assert checkpoint_ids(storage) == []
    assert staged(storage) == []


HOSTILE_IDS = [
    "", ".", "..", "/", "a/b", "../x", "a/../..", "/etc", "a\0b", ".staging", ".hidden", "a\\b", "x" * 256, "é" * 128,
    "\udcff", "a/", "./a",
]  # fmt: skip


@promise("paths-stay-inside")
@pytest.mark.parametrize("storage_id", HOSTILE_IDS)
def test_no_id_leaves_the_storage(storage: DirectoryStorage, source: Path, tmp_path: Path, storage_id: str) -> None:
    """A hostile storage id is refused by every call before any file is touched."""
    upload(storage, "good", source, METADATA)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / METADATA_NAME).write_text("not a checkpoint of this storage")
    before = sorted(tmp_path.rglob("*"))

    for call in (
        lambda: storage.stage(storage_id),
        lambda: upload(storage, storage_id, source, METADATA),
        lambda: storage.download(storage_id, tmp_path / "copy"),
        lambda: storage.manifest(storage_id),
        lambda: storage.verify(storage_id),
        lambda: storage.open(storage_id).__enter__(),
        lambda: storage.delete(storage_id),
        lambda: storage.delete(storage_id, ["**/*"]),
    ):
        with pytest.raises(UnsafePathError, match="the storage id"):
            call()

    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("storage_id", ["x" * 255, "a b", "ünïcode 模型 🎉", "a.b", "-rf", "%2e%2e", "con"])
def test_any_plain_name_is_an_id(storage: DirectoryStorage, source: Path, storage_id: str) -> None:
    """Any plain file name can be a storage id."""
    upload(storage, storage_id, source, METADATA)

    assert checkpoint_ids(storage) == [storage_id]
    storage.verify(storage_id)


@pytest.mark.parametrize("name", ["new\nline", "x" * 255, "*", "naïve 模型.pt", " ", "a\\b", "-rf", "\u202egnp.exe"])
def test_odd_file_names_are_kept_exactly(storage: DirectoryStorage, source: Path, tmp_path: Path, name: str) -> None:
    """Unusual file names are kept exactly."""
    (source / name).write_bytes(b"odd")

    upload(storage, "a", source, METADATA)
    storage.download("a", tmp_path / "copy")

    assert tree(tmp_path / "copy") == tree(source)


def test_a_name_that_is_not_utf8_is_refused(storage: DirectoryStorage, source: Path) -> None:
    """A file name that is not UTF-8 is refused."""
    Path(os.fsdecode(os.fsencode(source) + b"/\xff\xfe")).write_bytes(b"odd")

    with pytest.raises(UnsafePathError, match="UTF-8"):
        upload(storage, "a", source, METADATA)

    assert checkpoint_ids(storage) == []


@promise("paths-stay-inside")
@pytest.mark.parametrize(
    "name",
    ["../escaped", "/tmp/escaped", "a/../../escaped", "", "a//b", "a\0b", "a/", "model.bin/b", "d/" * 3_000 + "f"],
)
def test_a_crafted_manifest_cannot_write_outside(
    storage: DirectoryStorage, source: Path, tmp_path: Path, name: str
) -> None:
    """A manifest with a hostile file name counts as damaged, and nothing is written."""
    upload(storage, "a", source, METADATA)
    (storage.root / "escaped").write_bytes(b"")
    edit_manifest(
        storage,
        "a",
        lambda old: Manifest(storage_id="a", created=0.0, files={**old.files, name: old.files["nothing"]}),
    )

    with pytest.raises(CheckpointDamagedError) as raised:
        storage.download("a", tmp_path / "copy")

    assert raised.value.file == MANIFEST_NAME
    assert not (tmp_path / "copy").exists()
    assert not (tmp_path / "escaped").exists()


def test_a_download_does_not_pass_through_links(storage: DirectoryStorage, source: Path, tmp_path: Path) -> None:
    """A download does not write through symbolic links in its target."""
    upload(storage, "a", source, METADATA)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "precious").write_text("keep me")
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "model.bin").symlink_to(tmp_path / "precious")
    storage.download("a", copy, lambda name: name == "model.bin")
    (copy / "optimizer").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(UnsafePathError, match="symbolic link"):
        storage.download("a", copy)

    assert (tmp_path / "precious").read_text() == "keep me"
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert not (copy / "model.bin").is_symlink()


def flip_bit(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


@promise("checkpoint-verified")
def test_600_flipped_bits_are_600_refusals(storage: DirectoryStorage, source: Path, tmp_path: Path) -> None:
    """Each file has its share, our own two as well, and each refusal names its file."""
    (source / "nothing").unlink()
    upload(storage, "a", source, METADATA)
    directory = storage.root / "a"
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    generator = random.Random(600)
    num_refused = 0

    for index in range(600):
        path = files[index % len(files)]
        bit = generator.randrange(path.stat().st_size * 8)
        flip_bit(path, bit)
        with pytest.raises(CheckpointDamagedError) as raised, storage.open("a"):
            pass
        assert raised.value.file == str(path.relative_to(directory))
        if index < 50:
            with pytest.raises(CheckpointDamagedError):
                storage.download("a", tmp_path / f"copy{index}")
        flip_bit(path, bit)
        num_refused += 1

    assert len(files) == 4
    assert num_refused == 600
    storage.verify("a")


def append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


@promise("checkpoint-verified")
@pytest.mark.parametrize(
    ("damage", "file", "problem"),
    [
        (lambda path: (path / "model.bin").unlink(), "model.bin", "is missing"),
        (lambda path: (path / "model.bin").write_bytes(b""), "model.bin", "was truncated"),
        (lambda path: os.truncate(path / "model.bin", 19_999), "model.bin", "was truncated"),
        (lambda path: append(path / "model.bin"), "model.bin", "was extended"),
        (lambda path: (path / "extra").write_bytes(b""), "extra", "was not there"),
        (lambda path: (path / "optimizer" / "extra").mkdir(), "optimizer/extra/", "was not there"),
        (lambda path: (path / "optimizer" / "empty").rmdir(), "optimizer/empty/", "is missing"),
        (lambda path: shutil.rmtree(path / "optimizer"), "optimizer/", "is missing"),
        (lambda path: (path / METADATA_NAME).unlink(), METADATA_NAME, "is missing"),
        (lambda path: (path / MANIFEST_NAME).unlink(), MANIFEST_NAME, "is missing"),
        (lambda path: (path / MANIFEST_NAME).write_bytes(b""), MANIFEST_NAME, "not a manifest"),
        (lambda path: os.truncate(path / MANIFEST_NAME, 100), MANIFEST_NAME, "not a manifest"),
        (lambda path: append(path / MANIFEST_NAME), MANIFEST_NAME, "checksum"),
    ],
    ids=[
        "missing", "emptied", "truncated", "extended", "extra", "extra directory", "missing directory",
        "missing directory with files", "no metadata", "no manifest", "empty manifest", "truncated manifest",
        "extended manifest",
    ],
)  # fmt: skip
def test_damage_is_named(
    storage: DirectoryStorage, source: Path, damage: Callable[[Path], object], file: str, problem: str
) -> None:
    """Missing, additional, truncated and extended files are named as damage."""
    upload(storage, "a", source, METADATA)

    damage(storage.root / "a")

    with pytest.raises(CheckpointDamagedError, match=problem) as raised:
        storage.verify("a")
    assert raised.value.file == file
    with pytest.raises(CheckpointDamagedError), storage.open("a"):
        pass


def test_swapped_content_is_named(storage: DirectoryStorage, source: Path) -> None:
    """Swapped files and files replaced by links are named as damage."""
    (source / "other.bin").write_bytes(random.Random(3).randbytes(20_000))
    upload(storage, "a", source, METADATA)
    directory = storage.root / "a"
    (directory / "model.bin").rename(directory / "kept")
    (directory / "other.bin").rename(directory / "model.bin")
    (directory / "kept").rename(directory / "other.bin")

    with pytest.raises(CheckpointDamagedError, match="CRC-32C") as swapped:
        storage.verify("a")
    (directory / "other.bin").rename(storage.root / "elsewhere")
    (directory / "model.bin").rename(directory / "other.bin")
    (directory / "model.bin").symlink_to(storage.root / "elsewhere")
    with pytest.raises(CheckpointDamagedError, match="regular file") as linked:
        storage.verify("a")

    assert swapped.value.file == linked.value.file == "model.bin"


def test_a_manifest_of_another_checkpoint_is_refused(storage: DirectoryStorage, source: Path) -> None:
    """A directory that was copied or renamed by hand is not the checkpoint that its name says."""
    upload(storage, "a", source, METADATA)
    (storage.root / "a").rename(storage.root / "b")

    with pytest.raises(CheckpointDamagedError, match="another checkpoint, a") as raised:
        storage.verify("b")

    assert raised.value.file == MANIFEST_NAME


def test_a_checkpoint_of_a_newer_format_is_not_called_damaged(storage: DirectoryStorage, source: Path) -> None:
    """A checkpoint of a newer format asks for an upgrade and is not called damaged."""
    upload(storage, "a", source, METADATA)
    edit_manifest(storage, "a", lambda old: Manifest(format=2, storage_id="a", created=old.created, files=old.files))

    with pytest.raises(CheckpointTooNewError, match="format 2"):
        storage.verify("a")


def test_an_unknown_id_is_named(storage: DirectoryStorage, tmp_path: Path) -> None:
    """An unknown id is named, and a missing storage is not created."""
    for call in (
        lambda: storage.manifest("unknown"),
        lambda: storage.verify("unknown"),
        lambda: storage.download("unknown", tmp_path / "copy"),
        lambda: storage.delete("unknown"),
    ):
        with pytest.raises(CheckpointNotFoundError, match="'unknown'"):
            call()
    assert checkpoint_ids(storage) == []
    assert storage.sweep() == []
    assert not (tmp_path / "copy").exists()
    assert not storage.root.exists()


def test_delete_removes_one_checkpoint(storage: DirectoryStorage, source: Path) -> None:
    """delete() removes one checkpoint, even if it is damaged."""
    for storage_id in ("a", "b", "c"):
        upload(storage, storage_id, source, METADATA)
    (storage.root / "b" / MANIFEST_NAME).unlink()

    assert storage.delete("a") == {}
    assert storage.delete("b") == {}

    assert checkpoint_ids(storage) == ["c"]
    assert sorted(path.name for path in storage.root.iterdir()) == [".staging", "c"]
    assert staged(storage) == []
    storage.verify("c")


def test_of_many_who_delete_one_succeeds(storage: DirectoryStorage, source: Path) -> None:
    """Of several concurrent deletions one succeeds, and the others raise CheckpointNotFoundError."""
    upload(storage, "a", source, METADATA)
    outcomes: list[dict[str, int] | None] = []

    def delete() -> None:
        try:
            outcomes.append(storage.delete("a"))
        except CheckpointNotFoundError:
            outcomes.append(None)

    threads = [threading.Thread(target=delete) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(outcomes, key=str) == [None] * 7 + [{}]
    assert checkpoint_ids(storage) == []
    assert staged(storage) == []


def test_delete_spares_directories_that_are_no_checkpoints(storage: DirectoryStorage) -> None:
    """delete() refuses directories that are not checkpoints."""
    (storage.root / "thesis").mkdir(parents=True)
    (storage.root / "thesis" / "chapter1.tex").write_text("years of work")

    with pytest.raises(CheckpointNotFoundError):
        storage.delete("thesis")

    assert (storage.root / "thesis" / "chapter1.tex").exists()
    assert checkpoint_ids(storage) == []


@pytest.mark.parametrize(
    ("globs", "remaining"),
    [
        (["optimizer"], {"model.bin", "nothing", "notes.txt"}),
        (["optimizer/*"], {"model.bin", "nothing", "notes.txt", "optimizer/"}),
        (["*.txt"], {"model.bin", "nothing", "optimizer/", "optimizer/empty/", "optimizer/state.bin"}),
        (["**/*.bin", "nothing"], {"notes.txt", "optimizer/", "optimizer/empty/"}),
        (["**.bin"], {"nothing", "notes.txt", "optimizer/", "optimizer/empty/", "optimizer/state.bin"}),
        (["metadata.json", "absent"], {
            "model.bin", "nothing", "notes.txt", "optimizer/", "optimizer/empty/", "optimizer/state.bin",
        }),
    ],
)  # fmt: skip
def test_parts_of_a_checkpoint_can_be_deleted(
    storage: DirectoryStorage, source: Path, globs: list[str], remaining: set[str]
) -> None:
    """After a partial deletion the rest is a complete checkpoint with its metadata."""
    (source / "notes.txt").write_text("notes")
    upload(storage, "a", source, METADATA)

    resources = storage.delete("a", globs)

    assert set(resources) == remaining | {METADATA_NAME}
    assert storage.verify("a").resources == resources
    assert {name.rstrip("/") for name in remaining} == set(tree(storage.root / "a"))


def test_deleting_every_part_deletes_the_checkpoint(storage: DirectoryStorage, source: Path) -> None:
    """Deleting every part deletes the checkpoint."""
    upload(storage, "a", source, METADATA)

    assert storage.delete("a", ["**/*"]) == {}
    assert checkpoint_ids(storage) == []
    with pytest.raises(UnsafePathError):
        upload(storage, "b", source, METADATA) and storage.delete("b", ["../a"])
    assert checkpoint_ids(storage) == ["b"]


def test_a_partial_delete_that_was_cut_short_does_no_damage(storage: DirectoryStorage, source: Path) -> None:
    """A file that was to go and still lies there is no part of the checkpoint, and goes with the next."""
    upload(storage, "a", source, METADATA)
    storage.delete("a", ["model.bin"])
    shutil.copy(source / "model.bin", storage.root / "a" / "model.bin")

    storage.verify("a")
    storage.delete("a", ["nothing"])

    assert "model.bin" not in tree(storage.root / "a")


def test_space_is_checked_before_an_upload(storage: DirectoryStorage, source: Path) -> None:
    """A sparse file larger than any disk is refused before a byte is written."""
    os.truncate(source / "model.bin", 2**43)

    with pytest.raises(NotEnoughSpaceError) as raised:
        upload(storage, "a", source, METADATA)

    assert raised.value.needed_bytes >= 2**43
    assert checkpoint_ids(storage) == []
    assert staged(storage) == []


def test_a_missing_source_is_named(storage: DirectoryStorage, source: Path) -> None:
    """A missing source raises the file system's own error with the path."""
    with pytest.raises(FileNotFoundError, match="absent"):
        upload(storage, "a", source / "absent", METADATA)
    with pytest.raises(NotADirectoryError, match=r"model\.bin"):
        upload(storage, "a", source / "model.bin", METADATA)


def test_an_unreadable_staged_file_fails_the_save(storage: DirectoryStorage) -> None:
    """A staged file that cannot be read fails the save with the system's reason."""
    with pytest.raises(CheckpointNotStoredError) as raised, storage.stage("a") as staging:
        shutil.rmtree(staging.path)
        store_alone(staging, METADATA)

    assert isinstance(raised.value.__cause__, OSError)
    assert raised.value.__cause__.errno == errno.ENOENT
    assert checkpoint_ids(storage) == []


@pytest.mark.parametrize("selector", [None, lambda name: name.endswith("added")])
def test_a_download_refuses_what_was_added(
    storage: DirectoryStorage, tmp_path: Path, selector: Callable[[str], bool] | None
) -> None:
    """A file that was added to a checkpoint fails every read, unless a selector leaves it out."""
    with storage.stage("a") as staging:
        (staging.path / "model").write_bytes(b"weights")
        store_alone(staging, METADATA)
    (storage.root / "a" / "added").write_bytes(b"more")

    for read in (
        lambda: storage.download("a", tmp_path / "copy", selector),
        lambda: storage.verify("a", selector),
        lambda: storage.open("a", selector).__enter__(),
    ):
        with pytest.raises(CheckpointDamagedError) as raised:
            read()
        assert raised.value.file == "added"

    storage.download("a", tmp_path / "copy", lambda name: name == "model")
    assert (tmp_path / "copy" / "model").read_bytes() == b"weights"


def test_the_staging_area_is_as_open_as_the_storage(storage: DirectoryStorage) -> None:
    """The staging area has the permissions of the storage, whatever the umask."""
    storage.root.mkdir()
    storage.root.chmod(0o2770)

    storage.stage("a").discard()

    assert stat.S_IMODE((storage.root / ".staging").stat().st_mode) == 0o2770


@pytest.mark.parametrize("call", ["verify", "download"])
def test_a_checkpoint_that_is_deleted_while_it_is_read_is_not_called_damaged(
    storage: DirectoryStorage, source: Path, tmp_path: Path, call: str
) -> None:
    """A checkpoint that is deleted while it is read raises CheckpointNotFoundError, not damage."""
    upload(storage, "a", source, METADATA)

    def delete_and_accept(name: str) -> bool:
        if checkpoint_ids(storage):
            storage.delete("a")
        return True

    with pytest.raises(CheckpointNotFoundError):
        if call == "verify":
            storage.verify("a", delete_and_accept)
        else:
            storage.download("a", tmp_path / "copy", delete_and_accept)
