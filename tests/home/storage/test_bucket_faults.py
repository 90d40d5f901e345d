"""Faults at every request of every call: it succeeds or fails by name, and what is listed is whole."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from buckets import faults, work
from buckets.proxy import Fault, Request
from buckets.servers import BucketServer
from buckets.stand import Stand, start_stand
from buckets.work import Scene, Work

from core_sdk._home.storage.bucket._bucket import Bucket
from core_sdk._home.storage.bucket._limits import Limits
from core_sdk.errors import StorageUnreachableError

ONE_PER_STORE = ["strict GCS", "moto", "Azurite"]
ALL_SERVERS = [*ONE_PER_STORE, "SeaweedFS"]

FAULTS: dict[str, Fault] = {
    "dropped before the request": faults.drop_request(),
    "dropped within the request": faults.drop_request(after_bytes=100),
    "lost answer": faults.lose_answer(),
    "dropped within the answer": faults.drop_answer(after_bytes=10),
    "truncated answer": faults.truncate_answer(after_bytes=10),
    "429": faults.status(429, retry_after_s=0),
    "500": faults.status(500),
    "502": faults.status(502),
    "503": faults.status(503),
    "login page": faults.captive_portal(),
    "redirect to a login page": faults.redirect_to_portal(302),
    "redirect that keeps the method": faults.redirect_to_portal(307),
    "slow bytes": faults.slow(up_bytes_per_s=2e6, down_bytes_per_s=2e6),
    "late answer": faults.latency(0.05),
}

LIMITS = Limits(deadline_s=10.0, num_threads=4, whole_bytes=64 << 10, range_bytes=80_000)
SHORT_LIMITS = dataclasses.replace(LIMITS, deadline_s=0.3)
# One fault passes by itself: with the next try, after a pause of at most 0.2 s. The rest is for a slow machine.
BOUND_S = 30.0
SEVERAL_PARTS_BYTES = 17 << 20

StartStand = Callable[[str, Limits], Stand]


@pytest.fixture
def start(
    start_server: Callable[[str], BucketServer], open_bucket: Callable[[str], Bucket], tmp_path: Path
) -> Iterator[StartStand]:
    """A stand at the server of this name, with these limits behind the proxy."""
    with contextlib.ExitStack() as running:
        yield lambda name, limits: running.enter_context(start_stand(start_server(name), open_bucket, tmp_path, limits))


def num_requests_without_faults(stand: Stand, task: Work, temp_dir: Path) -> int:
    scene = Scene.new(temp_dir)
    outcome = work.run(stand, task, scene)
    assert outcome.error is None
    work.check(stand, task, scene, outcome)
    return outcome.num_requests


def survive(stand: Stand, task: Work, scene: Scene, number: int, fault: Fault) -> None:
    """Checks that the task survives one fault at the request of this number."""
    outcome = work.run(stand, task, scene, lambda: stand.proxy.fault(number, fault))

    assert outcome.error is None
    assert outcome.seconds < BOUND_S
    work.check(stand, task, scene, outcome)


@pytest.mark.parametrize(
    ("server_name", "kinds"),
    [("strict GCS", slice(None)), ("moto", slice(0, None, 2)), ("Azurite", slice(1, None, 2))],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_fault_of_each_kind_is_survived(start: StartStand, tmp_path: Path, server_name: str, kinds: slice) -> None:
    """Spread over the calls and their first six requests; S3 and Azure share the kinds."""
    stand = start(server_name, LIMITS)

    for index, fault in list(enumerate(FAULTS.values()))[kinds]:
        survive(stand, work.ALL[index % len(work.ALL)], Scene.new(tmp_path), 1 + index * 5 % 6, fault)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("task", work.ALL, ids=lambda task: task.name)
@pytest.mark.parametrize("server_name", ALL_SERVERS)
def test_each_fault_is_survived_at_each_request(
    start: StartStand, tmp_path: Path, server_name: str, task: Work
) -> None:
    """Every task survives every kind of fault at every request."""
    stand = start(server_name, LIMITS)

    for number in range(1, num_requests_without_faults(stand, task, tmp_path) + 1):
        for fault in FAULTS.values():
            survive(stand, task, Scene.new(tmp_path), number, fault)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("server_name", ALL_SERVERS)
def test_each_fault_is_survived_at_each_request_of_several_parts(
    start: StartStand, tmp_path: Path, server_name: str
) -> None:
    """A save of several parts survives a broken connection at every request."""
    stand = start(server_name, LIMITS)
    scene = Scene.new(tmp_path, SEVERAL_PARTS_BYTES)
    whole = work.run(stand, work.SAVE, scene)
    work.check(stand, work.SAVE, scene, whole)

    for number in range(1, whole.num_requests + 1):
        for fault in (faults.drop_request(1 << 20), faults.lose_answer(), faults.status(503)):
            survive(stand, work.SAVE, Scene.new(tmp_path, SEVERAL_PARTS_BYTES), number, fault)


def fail_from(stand: Stand, task: Work, temp_dir: Path, number: int, fault: Fault) -> bool:
    """Cuts the network from this request on and returns whether the call failed."""
    scene = Scene.new(temp_dir)
    counter = itertools.count(1)

    def is_gone(request: Request) -> bool:
        return next(counter) >= number

    outcome = work.run(stand, task, scene, lambda: stand.proxy.fault(is_gone, fault))

    assert outcome.error is None or isinstance(outcome.error, StorageUnreachableError)
    assert outcome.seconds < BOUND_S
    work.check(stand, task, scene, outcome)
    return outcome.error is not None


@pytest.mark.parametrize("server_name", ONE_PER_STORE)
def test_a_network_that_goes_and_stays_away_fails_the_call_by_name(
    start: StartStand, tmp_path: Path, server_name: str
) -> None:
    """A save fails with a named error if the network stays away, and the sweep finds its leftovers."""
    stand = start(server_name, SHORT_LIMITS)

    assert fail_from(stand, work.SAVE, tmp_path, 4, faults.drop_request())


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("server_name", ALL_SERVERS)
@pytest.mark.parametrize("fault", ["dropped before the request", "lost answer", "503", "login page"])
def test_the_network_may_go_at_any_request(start: StartStand, tmp_path: Path, server_name: str, fault: str) -> None:
    """If the network goes away at any request of any call, the call ends in time with a named error."""
    stand = start(server_name, SHORT_LIMITS)
    num_failed = 0

    for task in work.ALL:
        for number in range(1, num_requests_without_faults(stand, task, tmp_path) + 1):
            num_failed += fail_from(stand, task, tmp_path, number, FAULTS[fault])

    assert num_failed > 20


def test_a_store_that_says_when_to_come_back_is_obeyed(start: StartStand, tmp_path: Path) -> None:
    """429 with Retry-After: the next try comes after that time, and not much later."""
    stand = start("strict GCS", LIMITS)
    scene = Scene.new(tmp_path)

    outcome = work.run(stand, work.DELETE, scene, lambda: stand.proxy.fault(3, faults.status(429, retry_after_s=1)))

    assert outcome.error is None
    assert outcome.seconds >= 1.0
    work.check(stand, work.DELETE, scene, outcome)
