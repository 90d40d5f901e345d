"""A training with a loop of its own that is stopped anywhere goes on as if nothing had happened, bit for bit."""

from __future__ import annotations

import itertools
import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loop import exact_training
from loop.exact_training import NUM_BATCHES, NUM_EPOCHS, Seen, Training, loader_of
from promises import promise
from stage import read_back

from core_sdk.loop import ResumableLoader

CORE_SDK = Path(sys.executable).with_name("core-sdk")

PAUSED = 75
"""The exit status of a trial that was stopped and is to be continued."""


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Uses one thread, since sums are rounded differently with others."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def undisturbed() -> list[Seen]:
    """What the training sees on one rank without a stop."""
    return list(Training().run())


def scramble() -> None:
    """Changes all random generators, as another program would leave them."""
    random.seed()
    np.random.seed()
    torch.seed()


@promise("resume-exact")
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_training_resumes_exactly_from_each_batch_and_each_validation(
    undisturbed: list[Seen], num_workers: int
) -> None:
    """A training resumes exactly from every batch and validation, with other numbers of workers too."""
    training = Training(num_workers)
    checkpoints = {
        i: read_back(training.state.state_dict()) for i, _ in enumerate(training.run(), start=1) if training.can_save
    }

    assert len(checkpoints) >= NUM_BATCHES // 2
    for num_seen, checkpoint in checkpoints.items():
        resumed = Training(num_workers)
        scramble()
        resumed.state.load_state_dict(checkpoint)
        assert list(resumed.run()) == undisturbed[num_seen:]


def samples(loader: ResumableLoader) -> list[list[int]]:
    """Returns the samples of all batches to the end of the training."""
    return [batch[0].tolist() for _ in range(loader.epoch, NUM_EPOCHS) for batch in loader]


def test_every_batch_has_the_same_samples_on_any_number_of_ranks() -> None:
    """Global batches have the same samples on one to four ranks, before and after a resume."""

    def global_batches(num_ranks: int, state: dict[str, Any] | None = None) -> list[list[int]]:
        loaders = [loader_of(rank, num_ranks) for rank in range(num_ranks)]
        if state is not None:
            for each in loaders:
                each.load_state_dict(state)
        return [sorted(itertools.chain(*parts)) for parts in zip(*map(samples, loaders), strict=True)]

    expected = global_batches(1)
    assert all(global_batches(num_ranks) == expected for num_ranks in (2, 3, 4))
    for num_ranks_before, num_ranks in [(1, 3), (2, 1), (3, 4), (4, 2)]:
        before = loader_of(0, num_ranks_before)
        for _ in range(before.epoch, NUM_EPOCHS):
            for _ in before:
                assert global_batches(num_ranks, before.state_dict()) == expected[before.batches :]


class Trial:
    """Runs the training in processes by the commands that a person types."""

    def __init__(self, directory: Path, num_workers: int, *stops: str, data: str = "samples") -> None:
        self._output = directory / "seen"
        arguments = [str(self._output), str(num_workers), ",".join(stops), data]
        self._script = [sys.executable, exact_training.__file__, *arguments]
        self._max_attempts = len(stops) + 1
        self.codes: list[int] = []

    def train(self, *numbers_of_ranks: int) -> None:
        """Trains to the end; the attempts use these numbers of ranks in turn."""
        numbers = itertools.islice(itertools.cycle(numbers_of_ranks), self._max_attempts)
        for attempt, num_ranks in enumerate(numbers):
            launcher = [sys.executable, "-m", "launch.torch_distributed", f"--nproc-per-node={num_ranks}", "--"]
            command = [*(launcher if num_ranks > 1 else ()), *self._script]
            verb = ["trial", "resume", "1"] if attempt else ["run"]
            result = subprocess.run([CORE_SDK, *verb, "--", *command], capture_output=True, text=True, check=False)
            self.codes.append(result.returncode)
            if result.returncode == 0:
                return
        raise AssertionError(f"the training does not end: {self.codes} {result.stdout}{result.stderr}")

    def seen(self, rank: int = 0) -> list[Seen]:
        """Returns what all attempts have seen, one after the other."""
        lines = self._output.with_suffix(f".{rank}").read_text().splitlines()
        return [Seen(*json.loads(line)) for line in lines]


def assert_exact(seen: list[Seen], undisturbed: list[Seen]) -> None:
    """Checks that all attempts together saw exactly what the undisturbed training saw."""
    expected = {(each.batches, each.what): each for each in undisturbed}
    assert [each for each in seen if each != expected[each.batches, each.what]] == []
    assert {(each.batches, each.what) for each in seen} == expected.keys()


def test_a_training_that_is_stopped_and_killed_resumes_exactly(tmp_path: Path, undisturbed: list[Seen]) -> None:
    """A training with workers that is stopped and killed resumes exactly by `trial resume`."""
    trial = Trial(tmp_path, 2, "3:TERM", "7:KILL")

    trial.train(1)

    assert trial.codes == [PAUSED, 128 + signal.SIGKILL, 0]
    assert_exact(trial.seen(), undisturbed)


EVERY_BATCH = [
    [f"{i}:TERM" for i in range(1, NUM_BATCHES, 2)],
    [f"{i}:TERM" for i in range(2, NUM_BATCHES, 2)],
    [f"{i}:KILL" for i in range(1, NUM_BATCHES + 1)],
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("stops", EVERY_BATCH, ids=["odd", "even", "killed"])
def test_a_training_on_one_rank_resumes_exactly_from_each_batch(
    tmp_path: Path, undisturbed: list[Seen], stops: list[str], num_workers: int
) -> None:
    """A training on one rank resumes exactly after a stop or kill at every batch."""
    trial = Trial(tmp_path, num_workers, *stops)

    trial.train(1)

    assert len(trial.codes) == len(stops) + 1
    assert_exact(trial.seen(), undisturbed)


@pytest.fixture(scope="module")
def undisturbed_pair(tmp_path_factory: pytest.TempPathFactory) -> list[list[Seen]]:
    """What the training sees on each of two ranks without a stop."""
    trial = Trial(tmp_path_factory.mktemp("undisturbed"), 0)
    trial.train(2)
    return [trial.seen(0), trial.seen(1)]


def check_pair(directory: Path, undisturbed_pair: list[list[Seen]], num_workers: int, stops: list[str]) -> Trial:
    trial = Trial(directory, num_workers, *stops)
    trial.train(2)
    for rank in range(2):
        assert_exact(trial.seen(rank), undisturbed_pair[rank])
    return trial


@pytest.mark.timeout(600)
def test_two_ranks_that_are_stopped_and_killed_resume_exactly(
    tmp_path: Path, undisturbed_pair: list[list[Seen]]
) -> None:
    """Two ranks resume exactly after one of them was stopped and killed."""
    trial = check_pair(tmp_path, undisturbed_pair, 2, ["3:TERM", "7:KILL"])

    assert trial.codes[0] == PAUSED
    assert len(trial.codes) == 3


@pytest.mark.timeout(900)
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("stops", EVERY_BATCH, ids=["odd", "even", "killed"])
def test_a_training_on_two_ranks_resumes_exactly_from_each_batch(
    tmp_path: Path, undisturbed_pair: list[list[Seen]], stops: list[str], num_workers: int
) -> None:
    """A training on two ranks resumes exactly after a stop or kill at every batch."""
    check_pair(tmp_path, undisturbed_pair, num_workers, stops)


@pytest.mark.timeout(900)
def test_a_training_resumes_on_another_number_of_ranks_with_the_same_batches(
    tmp_path: Path, undisturbed: list[Seen]
) -> None:
    """On another number of ranks each global batch has the samples that it has on one rank."""
    trial = Trial(tmp_path, 0, "2:TERM", "5:TERM", "7:TERM")

    trial.train(2, 3, 1)

    assert_same_batches(trial, undisturbed)


@pytest.mark.timeout(600)
def test_a_training_on_shards_resumes_on_another_number_of_ranks_with_the_same_batches(tmp_path: Path) -> None:
    """A training on shards that was killed resumes with the same global batches on more ranks."""
    trial = Trial(tmp_path, 2, "5:KILL", data="shards")

    trial.train(2, 3)

    assert len(trial.codes) == 2
    assert_same_batches(trial, list(Training(data="shards").run()))


def assert_same_batches(trial: Trial, undisturbed: list[Seen]) -> None:
    """Checks that each global batch has the samples of an undisturbed training on one rank."""
    batches: dict[int, set[int]] = {}
    for each in itertools.chain(*map(trial.seen, range(3))):
        if each.what == "training":
            batches.setdefault(each.batches, set()).update(each.samples)
    assert batches == {each.batches: set(each.samples) for each in undisturbed if each.what == "training"}
