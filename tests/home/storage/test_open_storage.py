"""From a configuration to a storage."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from core_sdk._home.storage import DirectoryStorage, open_storage, storage_from_url
from core_sdk._home.storage._open import NamedBucket, named_storage
from core_sdk.errors import StorageError, UnknownStorageError


def root(spec: Any, default: Path) -> Path:
    storage = open_storage(spec, default)
    assert isinstance(storage, DirectoryStorage)
    return storage.root


def test_every_way_to_name_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory can be named by None, a string, a path, a URL or a configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    default = tmp_path / "default"

    assert root(None, default) == default
    assert root(str(tmp_path / "a"), default) == tmp_path / "a"
    assert root(tmp_path / "b", default) == tmp_path / "b"
    assert root("c/d", default) == tmp_path / "c" / "d"
    assert root("~/e", default) == tmp_path / "me" / "e"
    assert root((tmp_path / "f g%20é").as_uri(), default) == tmp_path / "f g%20é"
    assert root({"type": "directory", "container_path": str(tmp_path / "h")}, default) == tmp_path / "h"
    assert root({"type": "shared_fs", "host_path": str(tmp_path / "i")}, default) == tmp_path / "i"
    for storage_path in ("j", str(tmp_path / "i" / "j"), "k/../j"):
        config = {"type": "shared_fs", "host_path": str(tmp_path / "i"), "storage_path": storage_path}
        assert root(config, default) == tmp_path / "i" / "j"


def test_retention_keys_are_no_obstacle(tmp_path: Path) -> None:
    """Retention keys in a storage configuration are accepted."""
    config = {
        "type": "directory", "container_path": str(tmp_path), "save_experiment_best": 0, "save_trial_best": 1,
        "save_trial_latest": 1,
    }  # fmt: skip

    assert root(config, tmp_path / "default") == tmp_path


@pytest.mark.parametrize("name", ["plain", "with space", "ünï", "a%b?c#d", "a\nb", os.fsdecode(b"\xff")])
def test_a_url_leads_back_to_its_storage(tmp_path: Path, name: str) -> None:
    """A storage can be opened again by its URL."""
    storage = DirectoryStorage(tmp_path / name)

    reopened = storage_from_url(storage.url)

    assert isinstance(reopened, DirectoryStorage)
    assert reopened.root == storage.root
    assert reopened.url == storage.url


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", "empty"),
        ("gs://bucket/a/../b", "has '..'"),
        ("gs://", "not the name of a bucket"),
        ("gs://bucket/a?endpoint_url=b", "has endpoint_url, which means nothing here"),
        ("s3://key:hidden@bucket/prefix", "credentials go into the environment"),
        ("http://host/path", "not the URL of a storage"),
        ("file://host/path", "not the URL of a storage"),
        ("file://", "no absolute path"),
        ("file:///a?b", "not the URL of a storage"),
        ({}, "has type None"),
        ({"type": 3}, "has type 3"),
        ({"type": "nfs"}, "has type 'nfs'"),
        ({"type": "gcs"}, "needs bucket"),
        ({"type": "gcs", "bucket": "b", "access_key": "k"}, "has access_key"),
        ({"type": "gcs", "bucket": "b", "prefix": "../c"}, "has '..'"),
        ({"type": "gcs", "bucket": 5}, "bucket that is no string, but int"),
        ({"type": "s3", "bucket": "b", "access_key": "k"}, "only one of access_key and secret_key"),
        ({"type": "azure", "container": "c", "credential": "k"}, "a credential without account_url"),
        ({"type": "azure", "container": "c", "connection_string": "k", "account_url": "u"}, "one or the other"),
        ({"type": "directory"}, "needs container_path"),
        ({"type": "directory", "container_path": "relative"}, "needs container_path, an absolute path"),
        ({"type": "directory", "container_path": "/a", "host_path": "/b"}, "has host_path, which this version cannot"),
        ({"type": "shared_fs", "storage_path": "a"}, "needs host_path"),
        ({"type": "shared_fs", "host_path": "/a", "bucket": "b"}, "has bucket"),
        ({"type": "shared_fs", "host_path": "/a", "storage_path": "../b"}, "not within /a"),
        ({"type": "shared_fs", "host_path": "/a", "storage_path": "/b"}, "not within /a"),
        ({"type": "shared_fs", "host_path": "/a", "storage_path": 3}, "storage_path that is no string, but int"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(tmp_path: Path, spec: Any, message: str) -> None:
    """An invalid specification is refused before any directory is made."""
    with pytest.raises(ValueError, match=message):
        open_storage(spec, tmp_path / "default")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "spec",
    [
        "gs:bucket/x",
        "gs:/bucket",
        Path("gs://bucket/x"),
        "gs//bucket/x",
        "gcs://bucket/x",
        "GCS:bucket/x",
        "s3:/bucket/x",
        "s3a://bucket/x",
        "wasbs://container/x",
        "file:/x",
        "file://x/y",
        "localhost:1234/a/b",
        "https://me:hidden@host/a?sig=hidden",
        "host:a/b",
        "C:\\x",
    ],
)
def test_a_mistyped_url_is_no_local_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str | Path) -> None:
    """A mistyped URL is refused without its credentials, instead of making a local directory."""
    monkeypatch.chdir(tmp_path)

    with pytest.raises(UnknownStorageError, match="gs://bucket/prefix") as raised:
        open_storage(spec, tmp_path / "default")

    assert "hidden" not in str(raised.value)
    assert "://" in str(spec) or f"./{spec}" in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_a_path_may_hold_a_colon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path with a colon is accepted if it cannot be a URL."""
    monkeypatch.chdir(tmp_path)
    default = tmp_path / "default"

    assert root("./gs:b/c", default) == tmp_path / "gs:b" / "c"
    assert root("a/gs:b", default) == tmp_path / "a" / "gs:b"
    assert root(str(tmp_path / "c:d"), default) == tmp_path / "c:d"
    assert root((tmp_path / "c:d").as_uri(), default) == tmp_path / "c:d"
    assert root("gs/b", default) == tmp_path / "gs" / "b"


@pytest.mark.parametrize("prefix", ["./foo/", "foo", "/foo//.", "foo/./"])
def test_a_prefix_may_be_written_as_a_path(prefix: str, tmp_path: Path) -> None:
    """A prefix may be written like a path, but may not lead out of the bucket."""
    config = {"type": "s3", "bucket": "bucket", "prefix": prefix, "endpoint_url": "http://host"}

    assert named_storage(config, tmp_path) == NamedBucket("s3", "bucket", "foo", {"endpoint_url": "http://host"})
    with pytest.raises(ValueError, match=r"has '\.\.'"):
        named_storage(config | {"prefix": f"{prefix}/../../a"}, tmp_path)


def test_a_storage_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    """A storage that cannot be written is refused when it is opened."""
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(StorageError, match="Not a directory"):
        open_storage(tmp_path / "file" / "checkpoints", tmp_path)


def test_opening_sweeps(tmp_path: Path) -> None:
    """Opening a storage removes what a killed process left."""
    source = (
        "import os, signal, sys, pathlib; from core_sdk._home.storage import DirectoryStorage;"
        "DirectoryStorage(pathlib.Path(sys.argv[1])).stage('a'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", source, str(tmp_path)], check=False)
    assert list((tmp_path / ".staging").iterdir()) != []

    open_storage(tmp_path, tmp_path)

    assert list((tmp_path / ".staging").iterdir()) == []
