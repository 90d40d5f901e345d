"""Files on their way to a bucket and back, through a bucket in memory that fails when it is told to."""

from __future__ import annotations

import contextlib
import logging
import os
import pty
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import google_crc32c
import msgspec
import pytest
from buckets.memory import MemoryBucket, Store
from hypothesis import given
from hypothesis import strategies as st
from processes import TIMEOUT_S, wait_for
from promises import promise
from saving import checkpoint_ids, store_alone, upload

from core_sdk._ground.records import encode_manifest
from core_sdk._home.storage import ShardUnion, Staging, unite
from core_sdk._home.storage.bucket import BucketStorage, Limits
from core_sdk._home.storage.bucket._bucket import ObjectMissingError, TransientError, part_bytes
from core_sdk._home.storage.bucket._retry import Retry
from core_sdk._home.storage.bucket.transfer._crc32c import Crc32c
from core_sdk._home.storage.bucket.transfer._progress import LoggedProgress
from core_sdk.errors import CheckpointDamagedError, CheckpointNotStoredError, StorageError, StorageUnreachableError

METADATA = {"steps_completed": 7}
SMALL = Limits(deadline_s=2.0, whole_bytes=3_000, range_bytes=2_000)


def storage_of(bucket: MemoryBucket, tmp_path: Path, limits: Limits = SMALL) -> BucketStorage:
    return BucketStorage(bucket, temp_dir=tmp_path / "temp", limits=limits)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A directory with some small files and one that is sent in ten parts."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "large.bin").write_bytes(random.Random(1).randbytes(9_500))
    for index in range(5):
        (source / f"small{index}").write_bytes(random.Random(index).randbytes(500))
    return source


@given(st.binary(max_size=3_000), st.binary(max_size=3_000), st.binary(max_size=100))
def test_checksums_of_parts_make_that_of_the_whole(first: bytes, second: bytes, third: bytes) -> None:
    """The checksum of a whole is computed from the checksums of its parts."""
    parts = [Crc32c(google_crc32c.value(part), len(part)) for part in (first, second, third)]

    whole = parts[0].followed_by(parts[1]).followed_by(parts[2])

    assert whole == Crc32c(google_crc32c.value(first + second + third), len(first + second + third))


@pytest.mark.parametrize("operation", ["put", "begin", "part", "complete", "list", "stat", "delete"])
def test_what_passes_by_itself_does_not_fail_a_save(operation: str, source: Path, tmp_path: Path) -> None:
    """A save survives operations that fail twice for each object."""
    failures: dict[str, int] = {}

    def fail_twice(now: str, name: str) -> None:
        if now == operation and failures.setdefault(name, 0) < 2:
            failures[name] += 1
            raise TransientError("a cut connection")

    storage = storage_of(MemoryBucket(before=fail_twice), tmp_path)

    upload(storage, "a", source, METADATA)

    assert failures
    storage.verify("a")


def test_a_range_goes_on_where_it_broke_off(source: Path, tmp_path: Path) -> None:
    """A store that drops every connection after one piece is read to the end, and no byte twice."""
    bucket = MemoryBucket()
    upload(storage_of(bucket, tmp_path), "a", source, METADATA)
    asked: list[str] = []
    read = bucket.read

    def break_off(name: str, start: int, size_bytes: int, sink: Callable[[bytes], None]) -> None:
        asked.append(name)
        is_cut = name == "a/large.bin" and size_bytes > 700
        read(name, start, 700 if is_cut else size_bytes, sink)
        if is_cut:
            raise TransientError("a cut connection")

    bucket.read = break_off  # type: ignore[method-assign]
    storage_of(bucket, tmp_path).download("a", tmp_path / "target")

    assert (tmp_path / "target" / "large.bin").read_bytes() == (source / "large.bin").read_bytes()
    # 4 ranges of 2,000 bytes in pieces of 700, and one of 1,500.
    assert asked.count("a/large.bin") == 4 * 3 + 3


def test_an_interrupted_download_is_not_begun_anew(source: Path, tmp_path: Path) -> None:
    """A repeated download fetches only the ranges that had not arrived."""
    bucket = MemoryBucket()
    upload(storage_of(bucket, tmp_path), "a", source, METADATA)
    fetched: list[str] = []

    def fail_after_three(operation: str, name: str) -> None:
        if (operation, name) == ("read", "a/large.bin"):
            fetched.append(name)
            if len(fetched) > 3:
                raise StorageError("the cable is out")

    bucket.before = fail_after_three
    one_at_a_time = Limits(deadline_s=2.0, range_bytes=2_000, num_threads=1)
    with pytest.raises(StorageError):
        storage_of(bucket, tmp_path, one_at_a_time).download("a", tmp_path / "target")
    fetched.clear()
    bucket.before = lambda operation, name: fetched.append(name) if operation == "read" else None

    storage_of(bucket, tmp_path, one_at_a_time).download("a", tmp_path / "target")

    assert fetched.count("a/large.bin") == 2
    assert (tmp_path / "target" / "large.bin").read_bytes() == (source / "large.bin").read_bytes()
    assert not [path for path in (tmp_path / "target").iterdir() if path.name.startswith(".core-sdk")]


def test_the_remains_of_a_download_are_not_believed_unread(source: Path, tmp_path: Path) -> None:
    """Ranges of an interrupted download are verified before they are used."""
    bucket = MemoryBucket()
    upload(storage_of(bucket, tmp_path), "a", source, METADATA)
    one_at_a_time = Limits(deadline_s=2.0, range_bytes=2_000, num_threads=1)
    reads = iter(range(100))

    def fail_at_the_fourth(operation: str, name: str) -> None:
        if (operation, name) == ("read", "a/large.bin") and next(reads) == 3:
            raise StorageError("the cable is out")

    bucket.before = fail_at_the_fourth
    with pytest.raises(StorageError):
        storage_of(bucket, tmp_path, one_at_a_time).download("a", tmp_path / "target")
    (part,) = (tmp_path / "target").glob(".core-sdk-*.part")
    with part.open("r+b") as file:
        file.write(b"\0" * 100)

    storage_of(bucket, tmp_path).download("a", tmp_path / "target")

    assert (tmp_path / "target" / "large.bin").read_bytes() == (source / "large.bin").read_bytes()


def damaging(bucket: MemoryBucket, name: str, num_times: int) -> None:
    """Makes the next reads of the object return a flipped bit."""
    read, left = bucket.read, iter(range(num_times))

    def damaged(object_name: str, start: int, size_bytes: int, sink: Callable[[bytes], None]) -> None:
        is_damaged = object_name == name and next(left, None) is not None
        read(object_name, start, size_bytes, lambda piece: sink(bytes([piece[0] ^ is_damaged]) + piece[1:]))

    bucket.read = damaged  # type: ignore[method-assign, assignment]


@pytest.mark.parametrize("name", ["small3", "large.bin"])
def test_what_was_damaged_on_its_way_is_fetched_again(name: str, source: Path, tmp_path: Path) -> None:
    """A file that was damaged in transit is fetched again."""
    bucket = MemoryBucket()
    upload(storage_of(bucket, tmp_path), "a", source, METADATA)
    damaging(bucket, f"a/{name}", 1)

    storage_of(bucket, tmp_path).download("a", tmp_path / "target")

    assert (tmp_path / "target" / name).read_bytes() == (source / name).read_bytes()


@pytest.mark.parametrize("call", ["manifest", "verify", "check", "download", "delete"])
def test_a_manifest_that_was_damaged_on_its_way_is_fetched_again(call: str, source: Path, tmp_path: Path) -> None:
    """A manifest that was damaged in transit is fetched again by every call."""
    bucket = MemoryBucket()
    upload(storage_of(bucket, tmp_path), "a", source, METADATA)
    damaging(bucket, "a/.manifest.json", 1)
    storage = storage_of(bucket, tmp_path)

    match call:
        case "download":
            storage.download("a", tmp_path / "target")
        case "delete":
            storage.delete("a", ["small3"])
        case _:
            getattr(storage, call)("a")

    storage_of(bucket, tmp_path).verify("a")


@pytest.mark.parametrize("name", ["small3", "large.bin", ".manifest.json"])
def test_what_lies_damaged_in_the_store_is_named(name: str, source: Path, tmp_path: Path) -> None:
    """A file that is damaged in the store is named and is not left in the download."""
    bucket = MemoryBucket()
    storage = storage_of(bucket, tmp_path)
    upload(storage, "a", source, METADATA)
    damaging(bucket, f"a/{name}", 1_000)

    with pytest.raises(CheckpointDamagedError, match=name):
        storage.verify("a")
    with pytest.raises(CheckpointDamagedError, match=name):
        storage.download("a", tmp_path / "target")

    assert not (tmp_path / "target" / name).exists()
    assert not (tmp_path / "target" / ".manifest.json").exists()


def test_a_failed_save_leaves_no_object(source: Path, tmp_path: Path) -> None:
    """A failed save leaves no object, upload or lease."""

    def refuse(operation: str, name: str) -> None:
        if (operation, name) in (("put", "a/small4"), ("complete", "a/large.bin")):
            raise StorageError("no")

    bucket = MemoryBucket(before=refuse)

    with pytest.raises(StorageError):
        upload(storage_of(bucket, tmp_path), "a", source, METADATA)

    assert not bucket.store.objects
    assert not bucket.store.uploads
    assert not list((tmp_path / "temp").rglob("*.lock"))


@promise("bucket-away")
@pytest.mark.parametrize("first", ["put", "part", "complete"])
def test_an_unreachable_store_is_given_up_at_the_deadline(source: Path, tmp_path: Path, first: str) -> None:
    """An unreachable store fails the save at the deadline with the reason."""
    is_away, since = False, 0.0

    def cut(operation: str, name: str) -> None:
        nonlocal is_away, since
        if not is_away and operation == first and name.startswith("a/"):
            is_away, since = True, time.monotonic()
        if is_away:
            raise TransientError("the store answers with a login page")

    limits = Limits(deadline_s=2.0, whole_bytes=3_000)
    storage = storage_of(MemoryBucket(before=cut), tmp_path, limits)

    with pytest.raises(StorageUnreachableError, match=r"2 s: the store answers with a login page"):
        upload(storage, "a", source, METADATA)

    assert time.monotonic() - since >= limits.deadline_s
    assert time.monotonic() - since < 1.9 * limits.deadline_s + 1.0


def test_a_store_that_says_when_to_come_back_is_obeyed() -> None:
    """The store's Retry-After is respected, but the last try is made at the deadline."""
    calls: list[float] = []

    def busy() -> None:
        calls.append(time.monotonic())
        raise TransientError("429", retry_after_s=60.0)

    with pytest.raises(StorageUnreachableError, match="429"):
        Retry(deadline_s=1.0).call("gs://b/a", busy)

    assert len(calls) == 2
    assert calls[1] - calls[0] >= 0.9


@pytest.mark.parametrize("operation", ["part", "complete"])
def test_an_upload_that_the_store_has_dropped_begins_again(
    source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, operation: str
) -> None:
    """A dropped upload is begun again, and fails the save if it is dropped again and again."""
    remaining = 2

    def drop(what: str, name: str) -> None:
        nonlocal remaining
        if what == operation and remaining:
            remaining -= 1
            raise ObjectMissingError(name)

    bucket = MemoryBucket(before=drop)
    storage = storage_of(bucket, tmp_path, replace(SMALL, num_threads=1))
    upload(storage, "a", source, METADATA)
    storage.verify("a")
    told = [record.message for record in caplog.records if "begins again" in record.message]
    remaining = 1000

    with pytest.raises(CheckpointNotStoredError, match="has dropped an upload in parts again and again"):
        upload(storage_of(bucket, tmp_path), "b", source, METADATA)

    assert told == ["large.bin: the store has dropped its upload, which begins again"] * 2
    assert checkpoint_ids(storage) == ["a"]
    assert not [name for name in bucket.store.objects if name.startswith("b/")]


def test_a_lost_answer_to_the_manifest_is_no_failure(source: Path, tmp_path: Path) -> None:
    """If the answer to the manifest's put is lost, the retry recognizes its own manifest."""
    bucket = MemoryBucket()
    put, lost = bucket.put, iter([True])

    def lose_answer(name: str, content: bytes, *, if_absent: bool = False, if_version: str | None = None) -> None:
        put(name, content, if_absent=if_absent, if_version=if_version)
        if name.endswith(".manifest.json") and next(lost, False):
            raise TransientError("a cut connection")

    bucket.put = lose_answer  # type: ignore[method-assign]

    upload(storage_of(bucket, tmp_path), "a", source, METADATA)

    assert checkpoint_ids(storage_of(bucket, tmp_path)) == ["a"]


@promise("bucket-away")
def test_a_manifest_of_unknown_fate_is_taken_back(source: Path, tmp_path: Path) -> None:
    """A manifest whose fate is unknown when the save fails is withdrawn."""
    bucket = MemoryBucket()
    put = bucket.put

    def lose_every_answer(name: str, content: bytes, *, if_absent: bool = False, if_version: str | None = None) -> None:
        put(name, content, if_absent=if_absent and not content.startswith(b"{"), if_version=if_version)
        if name.endswith(".manifest.json") and content:
            raise TransientError("a cut connection")

    bucket.put = lose_every_answer  # type: ignore[method-assign]

    with pytest.raises(StorageUnreachableError):
        upload(storage_of(bucket, tmp_path, Limits(deadline_s=0.2)), "a", source, METADATA)

    assert checkpoint_ids(storage_of(bucket, tmp_path)) == []
    assert [name for name in bucket.store.objects if name.startswith("a/")] == ["a/.manifest.json"]


@pytest.mark.parametrize("name", ["large.bin", "small1"])
def test_a_file_that_changes_while_it_is_stored_is_refused(name: str, source: Path, tmp_path: Path) -> None:
    """A file that changes while it is stored fails the save."""

    def change(operation: str, object_name: str) -> None:
        if operation == "put" and object_name.startswith(".leases"):
            content = bytearray((source / name).read_bytes())
            content[0] ^= 1
            (source / name).write_bytes(content)

    bucket = MemoryBucket(before=change)

    with pytest.raises(CheckpointNotStoredError, match=f"'{name}' changed"):
        upload(storage_of(bucket, tmp_path), "a", source, METADATA)

    assert not bucket.store.objects


def test_a_save_can_be_cancelled(source: Path, tmp_path: Path) -> None:
    """A save can be cancelled by another thread and leaves nothing."""
    sending, release = threading.Event(), threading.Event()

    def hold(operation: str, name: str) -> None:
        if operation == "part":
            sending.set()
            release.wait(TIMEOUT_S)

    bucket = MemoryBucket(before=hold)
    with (
        pytest.raises(CheckpointNotStoredError, match="cancelled"),
        storage_of(bucket, tmp_path).stage("a") as staging,
        ThreadPoolExecutor(1) as other,
    ):
        staging.fill(source)

        def cancel() -> None:
            sending.wait(TIMEOUT_S)
            staging.cancel()
            release.set()

        other.submit(cancel)
        store_alone(staging, METADATA)

    assert not bucket.store.objects


def test_many_small_files_need_few_open_files(tmp_path: Path) -> None:
    """A download of many small files needs about one open file per thread."""
    source = tmp_path / "source"
    source.mkdir()
    for index in range(1_200):
        (source / f"{index}").write_bytes(b"x" * (index % 7))
    storage = storage_of(MemoryBucket(), tmp_path)
    upload(storage, "a", source, METADATA)
    most = 0

    def count(operation: str, name: str) -> None:
        nonlocal most
        most = max(most, len(list(Path("/proc/self/fd").iterdir())))

    before = len(list(Path("/proc/self/fd").iterdir()))
    storage._bucket.before = count  # type: ignore[attr-defined]

    storage.download("a", tmp_path / "target")

    assert most - before <= 3 * SMALL.num_threads
    assert len(list((tmp_path / "target").iterdir())) == 1_202


def test_a_slow_transfer_says_how_far_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """A slow transfer logs its progress."""
    with caplog.at_level(logging.INFO, logger="core_sdk.storage"):
        progress = LoggedProgress("storing checkpoint a", 4_000_000, interval_s=0.0)
        progress.add(1_000_000)
        progress.add(2_000_000)

    assert [record.getMessage().partition(",")[0] for record in caplog.records] == [
        "storing checkpoint a: 1 of 4 MB (25 %)",
        "storing checkpoint a: 3 of 4 MB (75 %)",
    ]


@pytest.mark.parametrize(
    ("size_bytes", "most_parts", "expected_mib"),
    [
        (1, 10_000, 16),
        (160_000 << 20, 10_000, 16),
        ((160_000 << 20) + 1, 10_000, 17),
        (5 << 40, 10_000, 525),
        (800_000 << 20, 50_000, 16),
        ((800_000 << 20) + 1, 50_000, 17),
    ],
)
def test_parts_grow_where_there_would_be_too_many(size_bytes: int, most_parts: int, expected_mib: int) -> None:
    """Parts grow with the object so that there are not too many."""
    assert part_bytes(size_bytes, most_parts) == expected_mib << 20
    assert -(-size_bytes // part_bytes(size_bytes, most_parts)) <= most_parts


def test_a_person_at_a_terminal_sees_a_bar(tmp_path: Path) -> None:
    """On a terminal a transfer shows a progress bar and removes it at the end."""
    script = """
from core_sdk._home.storage.bucket.transfer._progress_bar import TransferProgressBar
bar = TransferProgressBar("storing checkpoint a", 4_000_000, quiet_s=0.0)
bar.add(3_000_000)
bar.close()
"""
    reading, terminal = pty.openpty()
    with os.fdopen(reading, "rb") as screen:
        process = subprocess.Popen([sys.executable, "-c", script], stderr=terminal)
        os.close(terminal)

        shown = b""
        # A terminal whose other side is closed ends with an error, not with an empty read.
        with contextlib.suppress(OSError):
            while content := screen.read1():
                shown += content
    assert process.wait() == 0
    assert b"storing checkpoint a" in shown
    assert b"3.0/4.0 MB" in shown
    assert b"\x1b[2K" in shown


def test_a_place_for_temporary_files_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    """An unusable directory for temporary files is refused by name."""
    (tmp_path / "temp").write_text("no directory")

    with pytest.raises(StorageError, match="temp"):
        storage_of(MemoryBucket(), tmp_path)


@promise("bucket-swept")
def test_remains_of_the_dead_are_swept_and_those_of_the_living_are_not(source: Path, tmp_path: Path) -> None:
    """Elsewhere a lease counts as dead after an hour of the store's clock without renewal."""
    clock = [1_000_000.0]
    store = Store(now=lambda: clock[0])
    writer = storage_of(MemoryBucket(store), tmp_path)
    elsewhere = BucketStorage(MemoryBucket(store), temp_dir=tmp_path / "elsewhere", limits=SMALL)
    with pytest.raises(CheckpointNotStoredError, match="vanished"), writer.stage("a", is_shared=True) as staging:
        staging.fill(source)
        staging.contribute(list(staging.seal().files), staging.address)
        _move_to_another_machine(store)

        assert elsewhere.sweep() == []
        clock[0] += 3_601
        swept = elsewhere.sweep()

        assert len(swept) == 1
        assert swept[0].endswith("/a")
        staging.commit(_union_of(staging), METADATA)
    assert checkpoint_ids(elsewhere) == []
    clock[0] += 3_601
    elsewhere.sweep()
    assert set(store.objects) <= {".leases/clock"}


@pytest.mark.parametrize("kind", ["too long", "pipe"])
def test_a_lease_whose_lock_cannot_be_asked_stops_nobody(kind: str, source: Path, tmp_path: Path) -> None:
    """A lease whose lock cannot be checked counts as another machine's."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    lock = {"too long": f"/{'a' * 5_000}", "pipe": str(pipe)}[kind]
    bucket = MemoryBucket()
    with storage_of(bucket, tmp_path).stage("a", is_shared=True) as staging:
        staging.fill(source)
        staging.contribute(list(staging.seal().files), staging.address)
        for name, (content, found) in list(bucket.store.objects.items()):
            if name.startswith(".leases/"):
                lease = re.sub(rb'"lock":"[^"]*"', f'"lock":"{lock}"'.encode(), content)
                bucket.store.objects[name] = lease, replace(found, size_bytes=len(lease))

        assert storage_of(bucket, tmp_path).sweep() == []

        staging.commit(_union_of(staging), METADATA)
    storage_of(bucket, tmp_path).verify("a")


def _move_to_another_machine(store: Store) -> None:
    """Makes all leases look like another machine's."""
    for name, (content, found) in list(store.objects.items()):
        if name.startswith(".leases/"):
            store.objects[name] = re.sub(rb'"machine":"....', b'"machine":"else', content), found


def _union_of(staging: Staging) -> ShardUnion:
    return unite([staging.seal()])


def test_a_manifest_has_nothing_removed_that_lies_elsewhere(source: Path, tmp_path: Path) -> None:
    """A manifest whose list of removed files is unsafe counts as damaged."""
    bucket = MemoryBucket()
    storage = storage_of(bucket, tmp_path)
    manifest = upload(storage, "a", source, METADATA)
    bucket.put("a/.manifest.json", encode_manifest(msgspec.structs.replace(manifest, removed=["../b/small1"])))

    with pytest.raises(CheckpointDamagedError, match="not safe"):
        storage.delete("a", ["small1"])


def test_a_sweep_loses_against_a_manifest(source: Path, tmp_path: Path) -> None:
    """A save that was only slow, and has published in the last moment, is whole and stays."""
    clock = [1_000_000.0]
    store = Store(now=lambda: clock[0])
    elsewhere = BucketStorage(MemoryBucket(store), temp_dir=tmp_path / "elsewhere", limits=SMALL)
    with storage_of(MemoryBucket(store), tmp_path).stage("a", is_shared=True) as staging:
        staging.fill(source)
        staging.contribute(list(staging.seal().files), staging.address)
        staging.commit(_union_of(staging), METADATA)
        _move_to_another_machine(store)
        clock[0] += 3_601

        assert elsewhere.sweep() == []

    elsewhere.verify("a")


def test_progress_of_a_transfer_is_awaited_by_nobody(tmp_path: Path, source: Path) -> None:
    """The threads of a transfer end with it."""
    before = set(threading.enumerate())
    storage = storage_of(MemoryBucket(), tmp_path)

    upload(storage, "a", source, METADATA)

    wait_for(lambda: set(threading.enumerate()) <= before)
