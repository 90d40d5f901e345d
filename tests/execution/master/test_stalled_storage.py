"""A storage that does not answer holds up the trials that need it, and nobody else."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from buckets import faults
from buckets.proxy import Proxy, start_proxy
from buckets.servers import BucketServer
from execution.master.searches import ASHA, TRAIN, await_end, events_of, submit_text
from processes import wait_for

from core_sdk._execution.experiments.calling import call
from core_sdk._execution.experiments.protocol import Down, GetStatus, Want
from core_sdk._execution.steering import trials
from core_sdk._ground.records import AttemptBegun, ValidationRead, Wish
from core_sdk._home import Home, open_view
from core_sdk._home.deletion import delete_experiment
from core_sdk.errors import TrialRunningError


@dataclass(frozen=True)
class Stalling:
    """A bucket behind a proxy that can stall all requests."""

    config: str
    proxy: Proxy
    released: threading.Event

    def stall(self) -> None:
        """Stalls all requests from now on."""
        self.proxy.fault(lambda request: True, faults.stall(threading.Event(), self.released))

    def mend(self) -> None:
        self.released.set()


@pytest.fixture
def storage(start_server: Callable[[str], BucketServer]) -> Iterator[Stalling]:
    server = start_server("moto")
    with start_proxy(server.address) as proxy:
        bucket = urlsplit(server.make_bucket()).netloc
        config = {"type": "s3", "bucket": bucket, "endpoint_url": f"http://127.0.0.1:{proxy.address[1]}"}
        os.environ.update(server.variables(proxy.address))  # with credentials, for the master too
        stalling = Stalling(f"checkpoint_storage: {json.dumps(config)}\n", proxy, threading.Event())
        yield stalling
        stalling.mend()


@pytest.fixture
def stalled(home: Home, tmp_path: Path, storage: Stalling) -> int:
    """An experiment whose paused trial was activated, and waits for the storage of its checkpoint."""
    Home.create(home.root)
    call(home.root, GetStatus(), options=["--slots=2", "--stay"])
    text = ASHA.format(max_trials=1, max_concurrent=1, max_time=20) + storage.config
    experiment_id = submit_text(home, tmp_path, text, TRAIN)
    wait_for(lambda: any(isinstance(event, ValidationRead) for event in events_of(home, experiment_id)))
    want(home, experiment_id, "PAUSED")
    wait_for(lambda: running(home) == [])
    storage.stall()
    want(home, experiment_id, "ACTIVE")
    wait_for(lambda: running(home) == [1])
    return experiment_id


def want(home: Home, experiment_id: int, state: Wish) -> None:
    call(home.root, Want(experiment_id=experiment_id, state=state, by="a test"))


def running(home: Home) -> list[int]:
    return [trial.trial_id for found in call(home.root, GetStatus()).experiments for trial in found.running]


def num_begun(home: Home, experiment_id: int) -> int:
    return sum(isinstance(event, AttemptBegun) for event in events_of(home, experiment_id))


def test_other_experiments_run_while_a_storage_does_not_answer(
    home: Home, tmp_path: Path, storage: Stalling, stalled: int
) -> None:
    """While one experiment's storage does not answer, others run, and its trial resumes later."""
    other = submit_text(home, tmp_path, ASHA.format(max_trials=1, max_concurrent=1, max_time=4), "print('quick')\n")

    search = await_end(home, other)
    before = num_begun(home, stalled)
    storage.mend()

    assert search.state == "COMPLETED"
    assert (before, await_end(home, stalled).state) == (1, "COMPLETED")
    assert num_begun(home, stalled) == 2
    assert len(home.trial(1).attempts()) == 2


def test_an_experiment_is_killed_while_its_storage_does_not_answer(home: Home, storage: Stalling, stalled: int) -> None:
    """An experiment can be killed while its storage does not answer."""
    want(home, stalled, "KILLED")

    search = await_end(home, stalled, timeout_s=5)
    with pytest.raises(TrialRunningError):
        delete_experiment(home, stalled)
    storage.mend()

    assert search.state == "CANCELED"
    wait_for(lambda: call(home.root, GetStatus()).experiments == ())
    assert num_begun(home, stalled) == 1
    wait_for(lambda: home.trial(1).attempts() == [1])


def test_a_trial_is_killed_while_its_storage_does_not_answer(home: Home, stalled: int) -> None:
    """A trial can be killed while its storage does not answer."""
    trials.kill(home, 1, "a test")

    search = await_end(home, stalled, timeout_s=5)

    assert search.state == "CANCELED"
    with open_view(home) as view:
        assert [(trial.state, trial.reason) for trial in view.trials(stalled)] == [("CANCELED", "killed by a test")]


def test_a_pause_frees_the_slots_while_a_storage_does_not_answer(home: Home, storage: Stalling, stalled: int) -> None:
    """An activation waits until the storage has answered the first time; the attempt then begins once."""
    want(home, stalled, "PAUSED")
    wait_for(lambda: running(home) == [])
    want(home, stalled, "ACTIVE")
    storage.mend()

    search = await_end(home, stalled)

    assert search.state == "COMPLETED"
    assert num_begun(home, stalled) == len(home.trial(1).attempts()) == 2


def test_a_master_ends_while_a_storage_does_not_answer(home: Home, storage: Stalling, stalled: int) -> None:
    """A master can end while a storage does not answer, and the next one resumes the trial."""
    call(home.root, Down())
    storage.mend()

    call(home.root, GetStatus())
    search = await_end(home, stalled)

    assert search.state == "COMPLETED"
    assert num_begun(home, stalled) == 2
