"""What is Google's own in `GcsBucket`, against the two emulators that can be installed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from buckets.faults import drop_request
from buckets.proxy import Proxy, Request, start_proxy
from buckets.servers import BucketServer

from core_sdk.errors import UnknownStorageError
from core_sdk.storage._checksum import checksum
from core_sdk.storage.bucket._bucket import Bucket, ObjectMissingError, StreamedUpload, TransientError
from core_sdk.storage.bucket.gcs import GcsBucket

_SIZE_BYTES = 3_000_000
OpenThrough = Callable[[Proxy, BucketServer], Bucket]


@pytest.fixture
def fake_gcs_server(start_server: Callable[[str], BucketServer]) -> BucketServer:
    return start_server("fake-gcs-server")


@pytest.fixture
def gcp_storage_emulator(start_server: Callable[[str], BucketServer]) -> BucketServer:
    return start_server("gcp-storage-emulator")


@pytest.fixture
def open_through(open_bucket: Callable[[str], Bucket], monkeypatch: pytest.MonkeyPatch) -> OpenThrough:
    """A fresh bucket of the server, reached through the proxy."""

    def open_fresh(proxy: Proxy, server: BucketServer) -> Bucket:
        for name, value in server.variables(proxy.address).items():
            monkeypatch.setenv(name, value)
        return open_bucket(server.make_bucket())

    return open_fresh


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.bin"
    path.write_bytes(os.urandom(_SIZE_BYTES))
    return path


def content_of(bucket: Bucket, name: str, size_bytes: int) -> bytes:
    pieces: list[bytes] = []
    bucket.read(name, 0, size_bytes, pieces.append)
    return b"".join(pieces)


def begin_stream(bucket: Bucket, name: str, file: Path) -> StreamedUpload:
    upload = bucket.begin(name, checksum(file))
    assert isinstance(upload, StreamedUpload)
    return upload


def is_of_the_body(request: Request) -> bool:
    return request.method == "PUT" and not str(request.head.get("content-range")).startswith("bytes */")


def test_a_stream_goes_on_where_it_broke_off(
    gcp_storage_emulator: BucketServer, file: Path, open_through: OpenThrough
) -> None:
    """What the store has is not sent again, and each byte is counted once."""
    told: list[int] = []
    with start_proxy(gcp_storage_emulator.address) as proxy:
        bucket = open_through(proxy, gcp_storage_emulator)
        upload = begin_stream(bucket, "a/model.bin", file)
        proxy.reset()
        proxy.fault(2, drop_request(after_bytes=1_000_000))

        with pytest.raises(TransientError):
            upload.send(file, told.append)
        upload.send(file, told.append)

        assert [entry.bytes_up for entry in proxy.log if entry.method == "PUT"] == [
            1_000_000,
            0,
            _SIZE_BYTES - 1_000_000,
        ]
        assert sum(told) == upload.num_sent_bytes == _SIZE_BYTES
        assert content_of(bucket, "a/model.bin", _SIZE_BYTES) == file.read_bytes()


def test_a_truncated_object_is_removed_and_sent_anew(
    fake_gcs_server: BucketServer, file: Path, open_through: OpenThrough
) -> None:
    """Asked for an upload's state, this emulator makes an object of what has arrived."""
    with start_proxy(fake_gcs_server.address) as proxy:
        bucket = open_through(proxy, fake_gcs_server)
        upload = begin_stream(bucket, "a/model.bin", file)
        proxy.fault(is_of_the_body, drop_request(after_bytes=1_000_000))
        with pytest.raises(TransientError):
            upload.send(file, lambda _: None)
        proxy.reset()

        with pytest.raises(TransientError, match="other bytes than were sent"):
            upload.send(file, lambda _: None)
        left = list(bucket.list())
        upload.send(file, lambda _: None)

        assert left == []
        assert bucket.stat("a/model.bin").crc32c == checksum(file).crc32c


def test_an_empty_file_may_be_streamed(
    fake_gcs_server: BucketServer, gcp_storage_emulator: BucketServer, tmp_path: Path, open_through: OpenThrough
) -> None:
    """Nothing is a size too."""
    empty = tmp_path / "empty"
    empty.touch()
    for server in (fake_gcs_server, gcp_storage_emulator):
        with start_proxy(server.address) as proxy:
            bucket = open_through(proxy, server)

            begin_stream(bucket, "empty", empty).send(empty, lambda _: None)

            assert bucket.stat("empty").size_bytes == 0


@pytest.mark.parametrize("emulator", ["fake_gcs_server", "gcp_storage_emulator"])
def test_uploads_in_parts_are_asked_for_once(
    emulator: str, file: Path, request: pytest.FixtureRequest, open_through: OpenThrough
) -> None:
    """What an emulator does not know is remembered, also when uploads that were left are swept."""
    server: BucketServer = request.getfixturevalue(emulator)
    with start_proxy(server.address) as proxy:
        bucket = open_through(proxy, server)

        begin_stream(bucket, "a", file)
        begin_stream(bucket, "b", file)
        aborted = bucket.abort_uploads("")

        assert aborted == 0
        assert proxy.requests == 1


def test_sweeping_first_finds_no_uploads_where_none_are_known(
    fake_gcs_server: BucketServer, gcp_storage_emulator: BucketServer, open_through: OpenThrough
) -> None:
    """Before any upload it is not known yet what the emulator knows."""
    for server in (fake_gcs_server, gcp_storage_emulator):
        with start_proxy(server.address) as proxy:
            assert open_through(proxy, server).abort_uploads("a/") == 0


def test_many_objects_go_in_one_request(gcp_storage_emulator: BucketServer, open_through: OpenThrough) -> None:
    """Those that are not there do not keep the others."""
    with start_proxy(gcp_storage_emulator.address) as proxy:
        bucket = open_through(proxy, gcp_storage_emulator)
        for name in "abc":
            bucket.put(name, b"content")
        proxy.reset()

        bucket.delete(["a", "b"])

        assert [entry.path for entry in proxy.log] == ["/batch/storage/v1"]
        bucket.delete(["a", "c", "never"])
        assert list(bucket.list()) == []


def test_batches_that_an_emulator_answers_wrongly_are_tried_once(
    fake_gcs_server: BucketServer, open_through: OpenThrough
) -> None:
    """The objects are deleted one by one instead."""
    with start_proxy(fake_gcs_server.address) as proxy:
        bucket = open_through(proxy, fake_gcs_server)
        for name in "abcd":
            bucket.put(name, b"content")

        bucket.delete(["a", "b"])
        bucket.delete(["c", "d"])

        assert [entry.path for entry in proxy.log].count("/batch/storage/v1") == 1
        assert list(bucket.list()) == []


def test_a_range_beyond_the_end_is_missing_where_416_is_unknown(
    gcp_storage_emulator: BucketServer, open_through: OpenThrough
) -> None:
    """This emulator answers 206 with less, or with nothing."""
    with start_proxy(gcp_storage_emulator.address) as proxy:
        bucket = open_through(proxy, gcp_storage_emulator)
        bucket.put("a", b"0123456789")

        for start, size_bytes in [(5, 10), (10, 1), (500, 10)]:
            with pytest.raises(ObjectMissingError):
                bucket.read("a", start, size_bytes, lambda _: None)


def test_an_emulators_address_needs_a_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each request would fail, with a reason that nobody understands."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "localhost:4443")

    with pytest.raises(UnknownStorageError, match="STORAGE_EMULATOR_HOST is no URL"):
        GcsBucket("bucket", "prefix")


def test_the_url_names_bucket_and_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty prefix is allowed."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://localhost:1")

    assert GcsBucket("bucket", "a/b/").url == "gs://bucket/a/b"
    assert GcsBucket("bucket", "").url == "gs://bucket"
    assert GcsBucket("bucket", "").where("x/y") == "gs://bucket/x/y"
