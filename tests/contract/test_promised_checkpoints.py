"""What is promised of checkpoints in a bucket, where no other test holds it."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pytest
from buckets import faults
from buckets.opening import bucket_at
from buckets.proxy import DropConnection, Exchange, Proxy, start_proxy
from buckets.proxy import Request as WireRequest
from buckets.servers import BucketServer
from processes import Script, wait_for
from promises import promise
from saving import checkpoint_ids

from core_sdk import core
from core_sdk._home import Home
from core_sdk._home.storage import storage_from_url

StartScript = Callable[..., Script]
StartServer = Callable[[str], BucketServer]


@dataclass(frozen=True)
class OpenedBucket:
    """`url` is for `checkpoint_storage`; every request passes the proxy."""

    url: str
    proxy: Proxy

    def checkpoints(self) -> list[str]:
        with contextlib.closing(storage_from_url(self.url)) as storage:
            return checkpoint_ids(storage)


def store(context: core.Context, steps_completed: int) -> str:
    with context.checkpoint.store_path({"steps_completed": steps_completed}) as (path, storage_id):
        (path / "weights").write_bytes(b"w" * 10_000)
    return storage_id


@pytest.fixture
def bucket(start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenedBucket]:
    """A server of Google's kind, with the fault proxy before it, where this process and its scripts find it."""
    server = start_server("strict GCS")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with start_proxy(server.address) as proxy:
        for name, value in server.variables(proxy.address).items():
            monkeypatch.setenv(name, value)
        yield OpenedBucket(server.make_bucket(), proxy)


def is_manifest(request: WireRequest) -> bool:
    """Returns whether a request stores a manifest: only that is sent on the condition that none is there."""
    return request.method == "POST" and "ifGenerationMatch=0" in request.query


@promise("bucket-checkpoint-whole")
def test_a_bucket_has_a_checkpoint_from_its_manifest_on(home: Home, bucket: OpenedBucket) -> None:
    """A checkpoint in a bucket exists from its manifest on, and is not listed the moment before."""
    seen: list[list[str]] = []

    def look(exchange: Exchange) -> None:
        seen.append(bucket.checkpoints())
        exchange.pass_on()

    bucket.proxy.fault(is_manifest, look)
    with core.init(checkpoint_storage=bucket.url) as context:
        storage_id = store(context, 1)

    assert seen == [[]]
    assert bucket.checkpoints() == [storage_id]


@promise("bucket-swept")
def test_what_a_dead_process_left_in_a_bucket_is_swept(
    home: Home, bucket: OpenedBucket, start_script: StartScript
) -> None:
    """Objects and parts of uploads that a killed process left in a bucket are swept by a later init."""
    killed = threading.Event()

    def kill(exchange: Exchange) -> None:
        script.process.kill()
        script.process.wait()
        killed.set()
        raise DropConnection

    bucket.proxy.fault(lambda request: request.method == "POST" and "uploadId" in request.query, kill)
    script = start_script(
        """
        import sys
        from core_sdk import core
        with core.init(checkpoint_storage=sys.argv[1]) as context:
            with context.checkpoint.store_path({"steps_completed": 1}) as (path, storage_id):
                (path / "small").write_bytes(b"w" * 10_000)
                (path / "large").write_bytes(bytes(9 << 20))
        """,
        bucket.url,
    )
    assert killed.wait(30)
    parts = [entry.path for entry in bucket.proxy.log if entry.method == "PUT"]

    left = bucket_at(bucket.url)

    def remains() -> list[str]:
        return [item.name for item in left.list() if item.size_bytes and not item.name.startswith(".leases/")]

    with core.init(checkpoint_storage=bucket.url):
        wait_for(
            lambda: not remains() and any(each.method == "DELETE" and each.path in parts for each in bucket.proxy.log)
        )

    assert len(parts) == 1
    assert bucket.checkpoints() == []
    assert left.abort_uploads("") == 0


@promise("sweep-delays-nobody")
def test_a_sweep_delays_nobody(home: Home, bucket: OpenedBucket, caplog: pytest.LogCaptureFixture) -> None:
    """A sweep that gets no answer, or errors, from the store delays neither init() nor a save."""
    begun, released = threading.Event(), threading.Event()

    def is_of_sweep(request: WireRequest) -> bool:
        return request.method == "GET" and ".leases/" in unquote(request.query)

    bucket.proxy.fault(is_of_sweep, faults.stall(begun, released))
    with core.init(checkpoint_storage=bucket.url) as context:
        assert begun.wait(30)
        store(context, 1)
    assert "stays" not in caplog.text

    released.set()
    bucket.proxy.fault(is_of_sweep, faults.answer("501 Not Implemented", {}, b""))
    with core.init(checkpoint_storage=bucket.url):
        wait_for(lambda: "what dead processes may have left" in caplog.text)

    assert len(bucket.checkpoints()) == 1
