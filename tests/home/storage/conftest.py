"""Buckets of the servers that keep objects in these tests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from buckets.opening import STARTERS, bucket_at
from buckets.servers import BucketServer

from core_sdk._home.storage.bucket._bucket import Bucket


@pytest.fixture(params=STARTERS)
def server(
    request: pytest.FixtureRequest, start_server: Callable[[str], BucketServer], monkeypatch: pytest.MonkeyPatch
) -> BucketServer:
    """Starts each server in turn and points this process to it."""
    running = start_server(request.param)
    for name, value in running.variables().items():
        monkeypatch.setenv(name, value)
    return running


@pytest.fixture
def open_bucket() -> Iterator[Callable[[str], Bucket]]:
    """Opens a bucket by its URL, as the environment says; it is closed at the end of the test."""
    with contextlib.ExitStack() as opened:

        def open_url(url: str) -> Bucket:
            bucket = bucket_at(url)
            opened.callback(bucket.close)
            return bucket

        yield open_url
