"""All ranks stop at the same call: in every order of events, and with real processes, signals and deaths."""

from __future__ import annotations

import functools
import json
import random
import re
import signal
import subprocess
import sys
import textwrap
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from core.rank_processes import Ranks, codes, the_trial
from processes import wait_for
from promises import promise

from core_sdk._distributed import Listener, SoloChannel
from core_sdk._home import Home
from core_sdk.core._preempt._agreement import StopAgreement, describe_unevenness


class ScriptedGroup:
    """Ranks whose notices arrive when the test says so, in order between any two ranks."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.listeners: dict[int, Listener] = {}
        self.queues: dict[tuple[int, int], deque[bytes]] = {(a, b): deque() for a in range(size) for b in range(size)}

    def deliver(self, sender: int, receiver: int) -> None:
        self.listeners[receiver](sender, self.queues[sender, receiver].popleft())

    def waiting(self) -> list[tuple[int, int]]:
        return [pair for pair, queue in self.queues.items() if queue]


class ScriptedChannel(SoloChannel):
    """One rank's end of a `ScriptedGroup`; only its notices are used."""

    def __init__(self, group: ScriptedGroup, rank: int) -> None:
        super().__init__()
        self._group = group
        self.rank = rank
        self.size = group.size

    def listen(self, topic: str, listener: Listener) -> None:
        self._group.listeners[self.rank] = listener

    def tell_chief(self, topic: str, content: bytes) -> None:
        self._group.queues[self.rank, 0].append(content)

    def tell_all(self, topic: str, content: bytes) -> None:
        for rank in range(self.size):
            self._group.queues[0, rank].append(content)


class ScriptedRank:
    """A training loop, one instruction a turn: a call of `should_preempt()`, then a step of all ranks together."""

    def __init__(self, group: ScriptedGroup, rank: int, num_steps: int) -> None:
        self.num_calls = 0
        self.is_quiet = True
        self.num_steps_done = 0
        self.stopped_at: int | None = None
        self._num_steps = num_steps
        self.agreement = StopAgreement(
            ScriptedChannel(group, rank),
            counts_calls=True,
            num_calls=lambda: self.num_calls,
            on_news=lambda: setattr(self, "is_quiet", False),
            on_caught=lambda: None,
        )
        self._next: Callable[[], None] = self._begin_call

    @property
    def is_done(self) -> bool:
        return self.stopped_at is not None or self.num_steps_done == self._num_steps

    @property
    def is_in_step(self) -> bool:
        return self._next == self.finish_step

    def can_run(self) -> bool:
        is_held = self._next == self._look and self.agreement.is_held
        return not self.is_done and not self.is_in_step and not is_held

    def run(self) -> None:
        self._next()

    def _begin_call(self) -> None:
        self.num_calls += 1
        self._next = self._read_flag

    def _read_flag(self) -> None:
        self._next = self.finish_step if self.is_quiet else self._look

    def _look(self) -> None:
        if self.agreement.is_reached(self.num_calls):
            self.stopped_at = self.num_calls
            self.agreement.leave()
        self._next = self.finish_step

    def finish_step(self) -> None:
        self.num_steps_done += 1
        self._next = self._begin_call
        if self.is_done:
            self.agreement.leave()


def finish_step_together(ranks: list[ScriptedRank]) -> None:
    for rank in ranks:
        rank.finish_step()


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("are_in_step", [True, False], ids=["in step", "each at its own pace"])
def test_every_order_of_events_stops_all_ranks_at_one_call(size: int, are_in_step: bool) -> None:
    """In thousands of random orders of notices, calls and steps, no rank hangs and all stop at the same call."""
    for seed in range(1500):
        chance = random.Random(seed)
        group = ScriptedGroup(size)
        ranks = [ScriptedRank(group, rank, num_steps=12) for rank in range(size)]
        wishes = {chance.randrange(120): chance.randrange(size) for _ in range(chance.randrange(1, 4))}
        num_calls_when_wanted = None

        for turn in range(10_000):
            if turn in wishes and not all(rank.is_done for rank in ranks):
                ranks[wishes[turn]].agreement.want("test")
                num_calls_when_wanted = num_calls_when_wanted or max(rank.num_calls for rank in ranks)
            actions: list[Callable[[], None]] = [rank.run for rank in ranks if rank.can_run()]
            actions += [functools.partial(group.deliver, *pair) for pair in group.waiting()]
            running = [rank for rank in ranks if not rank.is_done]
            if are_in_step and len(running) == size and all(rank.is_in_step for rank in running):
                actions.append(functools.partial(finish_step_together, ranks))
            if not are_in_step:
                actions += [rank.finish_step for rank in ranks if rank.is_in_step and not rank.is_done]
            if not actions:
                break
            chance.choice(actions)()

        assert all(rank.is_done for rank in ranks), f"seed {seed}: a rank hangs"
        stops = {rank.stopped_at for rank in ranks if rank.stopped_at is not None}
        assert len(stops) <= 1, f"seed {seed}: {stops}"
        if stops and are_in_step:
            assert all(rank.stopped_at is not None for rank in ranks), f"seed {seed}: one rank goes on"


SCRIPT = """
    import json, os, sys, time
    from core_sdk import core

    rank, size, options = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])

    def say(what, *values):
        os.write(1, (json.dumps([what, *values]) + "\\n").encode())

    distributed = core.DistributedContext(
        rank=rank, size=size, local_rank=rank, local_size=size, cross_rank=0, cross_size=1,
        timeout_s=options.get("timeout_s", 30),
    )
    deadline = options.get("deadline_s") if rank == options.get("deadline_on") else None
    mode = core.PreemptMode[options.get("mode", "WorkersAskChief")]
    with core.init(distributed=distributed, preempt_mode=mode, deadline=deadline) as ctx:
        asks = rank == 0 or mode is not core.PreemptMode.ChiefOnly
        if options.get("never_asks"):
            asks = False
        call = 0
        say("ready", ctx.info.trial.trial_id)
        try:
            while True:
                call += 1
                if call == 3:
                    say("running")
                    if options.get("leaves_early") == rank:
                        break
                if asks and ctx.preempt.should_preempt():
                    say("stopped", call)
                    break
                if options.get("is_in_step", True):
                    distributed.allgather(call)
                elif mode is core.PreemptMode.ChiefOnly:
                    time.sleep(0.002)
        except Exception as error:
            say("error", type(error).__name__, str(error))
            raise
    say("left")
    if "stays_for" in options:
        while not os.path.exists(options["stays_for"]):
            time.sleep(0.01)
        say("went on")
        time.sleep(600)
"""


class Rank:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[list[object]] = []

    def read_until(self, what: str) -> list[object]:
        """Returns the first output of this kind."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(json.loads(line))
            if self.said[-1][0] == what:
                return self.said[-1]
        _, errors = self.process.communicate()
        raise AssertionError(f"it ended with {self.process.returncode}, having said {self.said}: {errors}")

    def freeze(self) -> None:
        """Stops the process with SIGSTOP and waits until none of its threads runs."""
        self.process.send_signal(signal.SIGSTOP)
        wait_for(lambda: psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED)


StartRanks = Callable[..., list[Rank]]


@pytest.fixture
def start_ranks(tmp_path: Path) -> Iterator[StartRanks]:
    started: list[Rank] = []

    def start(size: int, **options: object) -> list[Rank]:
        script = tmp_path / "train.py"
        script.write_text(textwrap.dedent(SCRIPT))
        for rank in range(size):
            process = subprocess.Popen(
                [sys.executable, str(script), str(rank), str(size), json.dumps(options)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            started.append(Rank(process))
        return started

    yield start
    for rank in started:
        if rank.process.poll() is None:
            rank.process.kill()
        rank.process.communicate()


@promise("ranks-stop-together")
@pytest.mark.parametrize("signalled", [1, 0, 2])
def test_sigterm_on_one_rank_stops_all_at_the_same_call(start_ranks: StartRanks, signalled: int) -> None:
    """SIGTERM on any rank stops all ranks at the same call, and all exit with status 0."""
    ranks = start_ranks(3)
    for rank in ranks:
        rank.read_until("running")

    ranks[signalled].process.send_signal(signal.SIGTERM)

    assert len({str(rank.read_until("stopped")) for rank in ranks}) == 1
    assert [rank.process.wait(30) for rank in ranks] == [0, 0, 0]


@promise("ranks-stop-together")
def test_a_pause_reaches_every_rank_at_the_same_call(start_ranks: StartRanks, home: Home) -> None:
    """A pause stops every rank at the same call, although only the chief reads the request."""
    ranks = start_ranks(2)
    for rank in ranks:
        rank.read_until("running")

    home.trial(1).request_stop(1, "test")

    assert len({str(rank.read_until("stopped")) for rank in ranks}) == 1


def test_a_deadline_of_one_rank_stops_all(start_ranks: StartRanks) -> None:
    """A deadline of any rank stops all ranks."""
    ranks = start_ranks(2, deadline_s=0.5, deadline_on=1)

    assert len({str(rank.read_until("stopped")) for rank in ranks}) == 1


SIGNALS = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])


@SIGNALS
def test_a_signal_to_all_ranks_at_once_is_one_stop(start_ranks: StartRanks, number: int) -> None:
    """A signal that a launcher sends to all ranks at once is one stop."""
    ranks = start_ranks(3)
    for rank in ranks:
        rank.read_until("running")

    for rank in ranks:
        rank.process.send_signal(number)

    assert len({str(rank.read_until("stopped")) for rank in ranks}) == 1


def test_a_stop_that_comes_when_it_has_been_obeyed_ends_nothing(start_ranks: StartRanks, tmp_path: Path) -> None:
    """The signal that has stopped all ranks is ignored for seconds if it comes once more, and ends them later on."""
    ranks = start_ranks(2, stays_for=str(tmp_path / "go on"))
    for rank in ranks:
        rank.read_until("running")
    ranks[0].process.send_signal(signal.SIGTERM)
    for rank in ranks:
        rank.read_until("left")

    for rank in (*ranks, *ranks):
        rank.process.send_signal(signal.SIGTERM)
    (tmp_path / "go on").touch()

    for rank in ranks:
        rank.read_until("went on")
        wait_for(functools.partial(ends_of_sigterm, rank.process))


def ends_of_sigterm(process: subprocess.Popen[str]) -> bool:
    process.send_signal(signal.SIGTERM)
    return process.poll() == -signal.SIGTERM


def test_a_rank_that_dies_leaves_no_call_waiting(start_ranks: StartRanks) -> None:
    """A call that waits for a rank that dies raises an error that names the rank."""
    ranks = start_ranks(2, is_in_step=False)
    for rank in ranks:
        rank.read_until("running")
    ranks[1].freeze()
    # Held now: the stopped rank's thread cannot answer.
    ranks[0].process.send_signal(signal.SIGTERM)

    ranks[1].process.kill()

    _, name, text = ranks[0].read_until("error")
    assert name == "RankDiedError"
    assert "rank 1" in str(text)


def test_a_stopped_rank_is_named_when_time_is_out(start_ranks: StartRanks) -> None:
    """A call that waits for a frozen rank times out and names the rank."""
    ranks = start_ranks(2, is_in_step=False, timeout_s=1)
    for rank in ranks:
        rank.read_until("running")
    ranks[1].freeze()

    ranks[0].process.send_signal(signal.SIGTERM)

    _, name, text = ranks[0].read_until("error")
    assert name == "CollectiveTimeoutError"
    assert "rank 1" in str(text)


def test_a_rank_that_outlives_the_chief_still_stops(start_ranks: StartRanks) -> None:
    """A rank that outlives the chief stops on a signal without an agreement."""
    ranks = start_ranks(2, is_in_step=False, leaves_early=0)
    for rank in ranks:
        rank.read_until("running")
    ranks[0].read_until("left")

    ranks[1].process.send_signal(signal.SIGTERM)

    assert ranks[1].read_until("stopped")


@SIGNALS
def test_chief_only_hears_of_a_workers_signal(start_ranks: StartRanks, number: int) -> None:
    """In ChiefOnly mode a worker's signal stops the chief, and the worker survives it."""
    ranks = start_ranks(2, mode="ChiefOnly", is_in_step=False)
    for rank in ranks:
        rank.read_until("running")

    ranks[1].process.send_signal(number)

    assert ranks[0].read_until("stopped")
    assert ranks[1].process.poll() is None


@SIGNALS
def test_chief_only_without_asking_leaves_signals_as_they_were(start_ranks: StartRanks, number: int) -> None:
    """In ChiefOnly mode, signals end a script that never asks, on every rank."""
    ranks = start_ranks(2, mode="ChiefOnly", is_in_step=False, never_asks=True)
    for rank in ranks:
        rank.read_until("running")

    ranks[1].process.send_signal(number)

    assert ranks[1].process.wait(30) == -number


@SIGNALS
def test_workers_that_ask_the_master_stop_each_at_its_next_call(start_ranks: StartRanks, number: int) -> None:
    """In WorkersAskMaster mode every rank learns of a stop at its own next call."""
    ranks = start_ranks(3, mode="WorkersAskMaster", is_in_step=False)
    for rank in ranks:
        rank.read_until("running")

    ranks[2].process.send_signal(number)

    for rank in ranks:
        assert rank.read_until("stopped")


def test_a_stop_is_acknowledged_once_and_the_trial_is_paused(start_ranks: StartRanks, home: Home) -> None:
    """The chief acknowledges a stop once for all ranks, and the trial is paused."""
    ranks = start_ranks(2)
    for rank in ranks:
        rank.read_until("running")

    ranks[1].process.send_signal(signal.SIGTERM)

    assert [rank.process.wait(30) for rank in ranks] == [0, 0]
    journal = home.trial(1).journal_path(1).read_text()
    assert journal.count('"type":"stop"') == 1
    wait_for(lambda: home.trial(1).running_attempt() is None)


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({0: 11, 1: 11}, None),
        ({0: 10, 1: 8}, None),
        ({0: 11, 1: 6}, "rank 0 made it, but rank 1 has made 6 calls"),
        ({0: 0, 1: 11, 2: 12}, "rank 1, rank 2 made it, but rank 0 has made 0 calls"),
    ],
)
def test_calls_are_uneven_once_only_some_ranks_have_made_the_agreed_one(
    counts: dict[int, int], words: str | None
) -> None:
    """The ranks' counts are uneven only if some have made the agreed call and others have not."""
    described = describe_unevenness(11, counts)

    assert described is None if words is None else words in str(described)


UNEVEN = """
    import torch.distributed as dist
    dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=size)
    with core.init(distributed=distributed) as context:
        for step in range(1000):
            dist.barrier()
            if step % (2 if rank == SELDOM else 1) == 0 and context.preempt.should_preempt():
                print("stopped")
                break
            if rank == 0 and step == 5:
                signal.raise_signal(signal.SIGTERM)
"""


@pytest.mark.parametrize("seldom", [0, 1])
def test_ranks_that_ask_unevenly_are_named(ranks: Ranks, seldom: int) -> None:
    """If ranks ask unevenly, an error besides the backend's says which rank has asked how often."""
    ended = ranks.run(UNEVEN.replace("SELDOM", str(seldom)))

    (left, failed) = (ended[1 - seldom], ended[seldom])
    assert (left.output, failed.output) == ("stopped\n", "")
    assert failed.code == 1
    assert re.search(rf"rank {1 - seldom} made it, but rank {seldom} has made \d+ calls", failed.errors)
    if seldom == 1:
        assert "rank 0 made it" in left.errors
    else:
        assert "rank 1 made it" in the_trial().reason


def test_a_rank_that_never_asks_is_named(ranks: Ranks) -> None:
    """A rank that never asks is named in a warning, although all ranks end well."""
    ended = ranks.run(
        """
        with core.init(distributed=distributed) as context:
            if rank == 0:
                context.preempt.should_preempt()
                signal.raise_signal(signal.SIGTERM)
                while not context.preempt.should_preempt():
                    time.sleep(0.01)
        """
    )

    assert codes(ended) == [0, 0]
    assert "rank 0 made it, but rank 1 has made 0 calls" in ended[0].errors
