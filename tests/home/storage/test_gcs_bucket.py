"""What is Google's own in `GcsBucket`, without a server or with the emulator that can be installed."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from buckets.servers import BucketServer
from google.cloud import storage
from parts import needs

from core_sdk._ground.records import FileEntry
from core_sdk._home.storage.bucket._bucket import Bucket
from core_sdk._home.storage.bucket.gcs._bucket import GcsBucket
from core_sdk._home.storage.bucket.gcs._client import _session_of
from core_sdk.errors import StorageError, UnknownStorageError


@needs("fake-gcs-server")
def test_an_emulator_without_uploads_in_parts_refuses_them_by_name(
    start_server: Callable[[str], BucketServer],
    open_bucket: Callable[[str], Bucket],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An emulator without multipart uploads refuses large files and stores small ones."""
    server = start_server("fake-gcs-server")
    for name, value in server.variables().items():
        monkeypatch.setenv(name, value)
    bucket = open_bucket(server.make_bucket())

    bucket.put("small", b"content")

    with pytest.raises(StorageError, match="large"):
        bucket.begin("large", FileEntry(size_bytes=20 << 20, crc32c="00000000"))
    assert bucket.abort_uploads("") == 0


def test_an_emulators_address_needs_a_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    """STORAGE_EMULATOR_HOST without a scheme is refused."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "localhost:4443")

    with pytest.raises(UnknownStorageError, match="STORAGE_EMULATOR_HOST is no URL"):
        GcsBucket("bucket", "prefix")


def test_the_librarys_client_has_the_private_names_that_we_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Google library's client has the private names that we use, or the error names the version without them."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://localhost:1")

    client = GcsBucket("bucket", "")._client

    assert client.library._http is _session_of(client.library)
    assert "_bucket_metadata_cache" in vars(client.library)
    with pytest.raises(RuntimeError, match=rf"google-cloud-storage {re.escape(storage.__version__)} has no session"):
        _session_of(object())


def test_the_url_names_bucket_and_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    """The URL has bucket and prefix, which may be empty."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://localhost:1")

    assert GcsBucket("bucket", "a/b/").url == "gs://bucket/a/b"
    assert GcsBucket("bucket", "").url == "gs://bucket"
    assert GcsBucket("bucket", "").where("x/y") == "gs://bucket/x/y"
