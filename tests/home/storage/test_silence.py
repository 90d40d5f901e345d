"""A wait for a store is said once it is long, and who is waited for."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from buckets import faults
from buckets.servers import BucketServer
from buckets.stand import start_stand
from processes import wait_for
from promises import promise

from core_sdk._home.storage.bucket import _silence
from core_sdk._home.storage.bucket._bucket import Bucket
from core_sdk._home.storage.bucket._limits import Limits
from core_sdk._home.storage.bucket._silence import SilenceWatch


@promise("silent-store-named")
@pytest.mark.parametrize("server_name", ["strict GCS", "moto", "Azurite"])
def test_a_request_that_hangs_is_said(
    start_server: Callable[[str], BucketServer],
    open_bucket: Callable[[str], Bucket],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    server_name: str,
) -> None:
    """A request that hangs is reported while it hangs, for every kind of bucket."""
    monkeypatch.setattr(_silence, "_LONG_S", 0.5)
    reached, released = threading.Event(), threading.Event()
    with start_stand(start_server(server_name), open_bucket, tmp_path, Limits(deadline_s=60.0)) as stand:
        stand.proxy.fault(lambda request: True, faults.stall(reached, released))
        asking = threading.Thread(target=stand.faulty.sweep, daemon=True)
        asking.start()

        wait_for(lambda: "waiting for" in caplog.text)

        released.set()
        asking.join()
    assert re.search(r"waiting for \S+://\S+ since [\d:]+", caplog.text)
    assert "CORE_SDK_STORAGE_DEADLINE_S" in caplog.text
    assert len(caplog.records) == 1


def test_a_failing_store_is_said_with_its_reason(
    start_server: Callable[[str], BucketServer],
    open_bucket: Callable[[str], Bucket],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A store that keeps failing is reported with its reason."""
    monkeypatch.setattr(_silence, "_LONG_S", 0.5)
    with start_stand(start_server("strict GCS"), open_bucket, tmp_path, Limits(deadline_s=60.0)) as stand:
        stand.proxy.fault(lambda request: True, faults.status(503))
        asking = threading.Thread(target=stand.faulty.sweep, daemon=True)
        asking.start()

        wait_for(lambda: "waiting for" in caplog.text)

        stand.proxy.reset()
        asking.join()
    assert "503" in caplog.text


def test_what_moves_is_not_silent(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A slow transfer that makes progress is not reported, and one that stands still is."""
    monkeypatch.setattr(_silence, "_LONG_S", 0.0)
    looks = iter(range(1_000_000))
    watch = SilenceWatch("End it")

    with watch.waiting("what moves", 60.0, lambda: next(looks)), watch.waiting("what stands", 60.0, lambda: 0):
        wait_for(lambda: "what stands" in caplog.text)

    assert "what moves" not in caplog.text
