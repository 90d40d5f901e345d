"""Stops trainings from outside at random moments, and looks at what they left.

    python benchmarks/stops.py [--stops 1000] [--seed 0] [--at-once 3]

Stopped are single processes and two ranks, with and without a launcher: by SIGTERM, by SIGUSR1 under Slurm, by either
to one of two ranks, and by notices of stub servers of GCE and EC2; in the middle of training, of an evaluation, and of
an upload, which takes a while and goes on in the background in half of the trainings. Kept is a stop after which,
within 15 s, all processes have ended by themselves, the trial is paused, and its newest checkpoint verifies and is at
most one step old. Exits with 1 if less than 99.9 % are kept; every other one is told with its cause.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import math
import multiprocessing
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import wait as wait_for_any
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any, NamedTuple, Protocol

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # where the stub servers and warm launchers are

from core.metadata_servers import AmazonStub, GoogleStub
from launches import Launch, WarmLaunchers, kill_all_in, launchers
from processes import wait_for

from core_sdk import core
from core_sdk._ground.records import Ended, Manifest, Report
from core_sdk._home import Home
from core_sdk._home.attempts.continuation import newest_good_checkpoint
from core_sdk._home.journal import read_records
from core_sdk._home.storage import DirectoryStorage, ShardUnion, Staging, storage_from_url
from core_sdk._home.storage.directory._staging import DirectoryStaging
from core_sdk.errors import CoreSDKError

TARGET = 0.999
ENDED_WITHIN_S = 15.0
HOPELESS_S = 40.0
MAX_STEP_S = 0.02
NUM_STEPS = 12
NUM_BATCHES = 10
UPLOAD_S = 0.3
MOMENTS = {"training": NUM_STEPS * MAX_STEP_S / 2, "evaluation": NUM_BATCHES * MAX_STEP_S / 2, "upload": UPLOAD_S}
PAUSED = 75
_BEGUN_WITHIN_S = 300.0
# Trainings that a killed benchmark leaves behind end.
_ABANDONED_S = 900
# Not imported: torch would be, too, by each child.
_SLOW_IMPORTS = ("argparse", "http.server", "psutil", "statistics", "subprocess", "uuid")


@dataclass(frozen=True)
class Plan:
    """One training, and how it is stopped."""

    index: int
    kind: str
    moment: str
    turn: int
    """The moment lies in this turn of the training's loop, of which this share has passed."""
    share: float
    folder: Path

    @property
    def home(self) -> Home:
        return Home(self.folder / "home")


@dataclass(frozen=True)
class Result:
    plan: Plan
    latency_s: float
    problems: tuple[str, ...]


class Training(Protocol):
    """Processes that train."""

    def stop(self) -> None: ...

    def wait(self) -> list[str]:
        """Waits for their end, and returns what is wrong with it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stops", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    parser.add_argument("--at-once", type=int, default=3)
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train is not None:
        train_on_rank(arguments.train, core.DistributedContext.from_torch_distributed())
        return
    print(f"seed {arguments.seed}")
    with tempfile.TemporaryDirectory(prefix="stops-") as scratch, launchers() as warm:
        plans = plan_stops(arguments.stops, random.Random(arguments.seed), Path(scratch))
        results = stop_all(plans, Starter(warm), arguments.at_once)
    sys.exit(0 if tell(results) >= TARGET else 1)


def plan_stops(number: int, choices: random.Random, scratch: Path) -> Iterator[Plan]:
    kinds, moments = list(KINDS), list(MOMENTS)
    for index in range(number):
        # Each kind meets each moment, and a few plans have some of all.
        kind, moment = kinds[index % len(kinds)], moments[(index + index // len(kinds)) % len(moments)]
        yield Plan(index, kind, moment, choices.choice((1, 2)), choices.random(), scratch / str(index))


def stop_all(plans: Iterator[Plan], starter: Starter, at_once: int) -> list[Result]:
    results = []
    with ThreadPoolExecutor(at_once) as threads:
        for result in threads.map(starter.run, plans):
            results.append(result)
            for problem in result.problems:
                print(f"stop {result.plan.index}, {result.plan.kind} during {result.plan.moment}: {problem}")
            if len(results) % 100 == 0:
                print(f"{len(results)} stops, {sum(not each.problems for each in results)} kept", flush=True)
    return results


def tell(results: Sequence[Result]) -> float:
    """Returns the share of stops that were kept."""
    num_kept = sum(not result.problems for result in results)
    counts = collections.Counter((each.plan.kind, each.plan.moment) for each in results if not each.problems)
    for kind in KINDS:
        latencies_s = [each.latency_s for each in results if each.plan.kind == kind]
        kept = ", ".join(f"{moment} {counts[kind, moment]}" for moment in MOMENTS)
        print(f"{kind:32} kept: {kept}; {_latencies(latencies_s)}")
    share = num_kept / len(results)
    print(
        f"{len(results)} stops: {share:.2%} kept (target {TARGET:.1%}); from the stop to the end "
        f"{_latencies([result.latency_s for result in results])} (limit {ENDED_WITHIN_S:g} s)"
    )
    return share


def _latencies(latencies_s: Sequence[float]) -> str:
    if not latencies_s:
        return "none"
    ordered = sorted(latencies_s)
    p99 = ordered[math.ceil(0.99 * len(ordered)) - 1]
    return f"p50 {statistics.median(ordered):.2f} s, p99 {p99:.2f} s, max {ordered[-1]:.2f} s"


class Starter:
    """Runs plans; for several threads."""

    def __init__(self, warm: WarmLaunchers) -> None:
        self._warm = warm
        self._forkserver = multiprocessing.get_context("forkserver")
        # This file is imported by each child: what takes time in it, and what a training imports on demand.
        self._forkserver.set_forkserver_preload(
            [
                "core_sdk.core._preempt._notices",
                "core_sdk._distributed.joining._join",
                "core_sdk.client",
                *_SLOW_IMPORTS,
            ]
        )

    def run(self, plan: Plan) -> Result:
        plan.folder.mkdir(mode=0o700)
        with self._started(plan) as training:
            is_begun = await_moment(plan)
            stopped_at = time.monotonic()
            training.stop()
            problems = training.wait()
            latency_s = time.monotonic() - stopped_at
        if not is_begun:
            problems.append(f"{plan.moment} has not come")
        if latency_s > ENDED_WITHIN_S:
            problems.append(f"it took {latency_s:.1f} s")
        problems += problems_of_records(plan.home)
        if problems:
            problems += [f"{path.name}: {path.read_text()[-600:]}" for path in sorted(plan.folder.glob("*err*"))]
        shutil.rmtree(plan.folder, ignore_errors=True)
        return Result(plan, latency_s, tuple(problems))

    @contextlib.contextmanager
    def _started(self, plan: Plan) -> Iterator[Training]:
        size, is_launched, stub, number, slurm = KINDS[plan.kind]
        variables = {"CORE_SDK_HOME": str(plan.home.root), "CORE_SDK_GRACE_S": str(ENDED_WITHIN_S), **slurm}
        if is_launched:
            program = ["--", sys.executable, __file__, "--train", str(plan.folder)]
            launch = self._warm.start(plan.folder, "", (), size, program, variables=variables)
            try:
                yield Launched(launch, number)
            finally:
                kill_all_in(plan.folder)
            return
        with stub() if stub else contextlib.nullcontext() as server:
            ranks = Ranks(self._forkserver, plan, size, variables, number, server)
            try:
                yield ranks
            finally:
                ranks.kill()


@dataclass(frozen=True)
class Launched:
    launch: Launch
    number: signal.Signals

    def stop(self) -> None:
        self.launch.send(self.number)

    def wait(self) -> list[str]:
        ended = self.launch.wait()
        return [] if ended.code == PAUSED else [f"the launcher ended with {ended.code}"]


class Ranks:
    """Forked by a process that has everything imported. With a server each is a node of its own; one of them asks."""

    def __init__(
        self,
        forkserver: ForkServerContext,
        plan: Plan,
        size: int,
        variables: Mapping[str, str],
        number: signal.Signals,
        server: GoogleStub | AmazonStub | None,
    ) -> None:
        self._folder = plan.folder
        self._number = number
        self._server = server
        self._victim = plan.index % size
        num_nodes = size if server else 1
        if server is not None:
            clouds = "gce" if isinstance(server, GoogleStub) else "ec2"
            variables = {**variables, **server.variables, "CORE_SDK_STOP_NOTICES": clouds}
        self._processes: list[ForkServerProcess] = []
        for rank in range(size):
            of_rank = dict(variables)
            if rank != self._victim:
                of_rank.pop("CORE_SDK_STOP_NOTICES", None)
            place = Place(rank, size, num_nodes)
            self._processes.append(forkserver.Process(target=become_rank, args=(plan.folder, place, of_rank)))
        for process in self._processes:
            process.start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.say(preempted="TRUE", interruption={"action": "terminate", "time": "2027-01-02T03:04:05Z"})
        else:
            os.kill(self._processes[self._victim].pid or 0, self._number)

    def wait(self) -> list[str]:
        deadline = time.monotonic() + HOPELESS_S
        for process in self._processes:
            wait_for_any([process.sentinel], max(deadline - time.monotonic(), 0))
        # Not by their exit codes, which multiprocessing tells only one of several threads that ask.
        unwell = [rank for rank in range(len(self._processes)) if not ended_well(self._folder, rank).exists()]
        return [f"these ranks did not end well: {unwell}"] if unwell else []

    def kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()


class Kind(NamedTuple):
    num_ranks: int
    is_launched: bool
    stub: type[GoogleStub] | type[AmazonStub] | None
    """Whose notice is the stop; None where it is the signal."""
    number: signal.Signals
    slurm: dict[str, str]


_SLURM = {"SLURM_JOB_ID": "7"}
KINDS = {
    "SIGTERM to a single process": Kind(1, False, None, signal.SIGTERM, {}),
    "SIGTERM to one of two ranks": Kind(2, False, None, signal.SIGTERM, {}),
    "SIGTERM to the launcher": Kind(2, True, None, signal.SIGTERM, {}),
    "SIGUSR1 to a single process": Kind(1, False, None, signal.SIGUSR1, _SLURM),
    "SIGUSR1 to one of two ranks": Kind(2, False, None, signal.SIGUSR1, _SLURM),
    "SIGUSR1 to the launcher": Kind(2, True, None, signal.SIGUSR1, _SLURM),
    "GCE's notice to a single process": Kind(1, False, GoogleStub, signal.SIGTERM, {}),
    "GCE's notice to one of two nodes": Kind(2, False, GoogleStub, signal.SIGTERM, {}),
    "EC2's notice to one of two nodes": Kind(2, False, AmazonStub, signal.SIGTERM, {}),
}


@dataclass(frozen=True)
class Place:
    rank: int
    size: int
    num_nodes: int

    def join(self, folder: Path) -> core.DistributedContext:
        if self.size == 1:
            return core.DistributedContext()
        per_node = self.size // self.num_nodes
        return core.DistributedContext(
            rank=self.rank,
            size=self.size,
            local_rank=self.rank % per_node,
            local_size=per_node,
            cross_rank=self.rank // per_node,
            cross_size=self.num_nodes,
            rendezvous=str(folder),
            timeout_s=HOPELESS_S,
            join_timeout_s=HOPELESS_S,
        )


def become_rank(folder: Path, place: Place, variables: Mapping[str, str]) -> None:
    errors = os.open(folder / f"err-{place.rank}", os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(errors, 2)
    os.environ.update(variables)
    train_on_rank(folder, place.join(folder))
    ended_well(folder, place.rank).touch()


def ended_well(folder: Path, rank: int) -> Path:
    return folder / f"ended-{rank}"


def train_on_rank(folder: Path, distributed: core.DistributedContext) -> None:
    index = int(folder.name)
    signal.alarm(_ABANDONED_S)
    with core.init(name="stops", distributed=distributed) as context:
        context.checkpoint._storage = SlowStorage(Path(storage_root(context)))
        Loop(context, folder, waits=index % 2 == 0, asks_in_evaluation=index % 3 > 0).run()


def storage_root(context: core.Context) -> Path:
    storage = context.checkpoint._storage
    if not isinstance(storage, DirectoryStorage):
        raise TypeError(f"the home's storage is a {type(storage).__name__}")
    return storage.root


class Loop:
    """A training as scripts have it; the chief says in a file what it is about."""

    def __init__(self, context: core.Context, folder: Path, *, waits: bool, asks_in_evaluation: bool) -> None:
        self._context = context
        self._phases = folder / "phases"
        self._waits = waits
        self._asks_in_evaluation = asks_in_evaluation
        self._step = 0

    def run(self) -> None:
        self._context.preempt.should_preempt()
        self._context.distributed.allgather(None)
        while not self._is_over():
            pass
        self._save()

    def _is_over(self) -> bool:
        if self._train() or self._evaluate():
            return True
        self._save()
        return False

    def _train(self) -> bool:
        self._say("training")
        for _ in range(NUM_STEPS):
            self._step += 1
            self._compute()
            self._context.distributed.allgather(None)
            self._context.train.report_training_metrics(self._step, {"loss": 1 / self._step})
            if self._context.preempt.should_preempt():
                return True
        return False

    def _evaluate(self) -> bool:
        self._say("evaluation")
        for _ in range(NUM_BATCHES):
            self._compute()
            if self._asks_in_evaluation and self._context.preempt.should_preempt():
                return True
        self._context.train.report_validation_metrics(self._step, {"loss": 1 / self._step})
        return False

    def _save(self) -> None:
        rank, is_sharded = self._context.distributed.rank, self._context.distributed.size > 1
        metadata = {"steps_completed": self._step}
        self._say("upload")
        with self._context.checkpoint.store_path(metadata, shard=is_sharded, wait=self._waits) as (path, _):
            (path / f"model-{rank}").write_bytes(os.urandom(20_000))

    def _compute(self) -> None:
        time.sleep(random.uniform(0.005, MAX_STEP_S))

    def _say(self, phase: str) -> None:
        if self._context.distributed.is_chief:
            with self._phases.open("a") as file:
                file.write(f"{phase}\n")


class SlowStorage(DirectoryStorage):
    """What is staged takes its time to become a checkpoint, as in a bucket."""

    def stage(self, storage_id: str, *, is_shared: bool = False) -> Staging:
        return _SlowStaging(self.root, self._area.new_directory(), storage_id)


class _SlowStaging(DirectoryStaging):
    def commit(self, union: ShardUnion, metadata: Mapping[str, Any]) -> Manifest:
        time.sleep(UPLOAD_S)
        return super().commit(union, metadata)


def await_moment(plan: Plan) -> bool:
    """Until the planned share of the moment has passed; whether it has come at all."""
    path = plan.folder / "phases"
    try:
        wait_for(
            lambda: path.exists() and path.read_text().splitlines().count(plan.moment) >= plan.turn, _BEGUN_WITHIN_S
        )
    except AssertionError:
        return False
    time.sleep(plan.share * MOMENTS[plan.moment])
    return True


def problems_of_records(home: Home) -> list[str]:
    """Returns what is missing of a paused trial with a good checkpoint of its last step."""
    folder = home.trial(1)
    try:
        records = list(read_records(folder.journal_path(1)))
        checkpoint = newest_good_checkpoint(folder).checkpoint
        if checkpoint is None:
            return ["there is no good checkpoint"]
        storage_from_url(checkpoint.storage).verify(checkpoint.storage_id)
    except (CoreSDKError, OSError) as error:
        return [f"{type(error).__name__}: {error}"]
    outcomes = [record.outcome for record in records if isinstance(record, Ended)]
    last_step = max(record.steps_completed for record in records if isinstance(record, Report))
    problems = [] if outcomes == ["paused"] else [f"recorded as ended: {outcomes or 'no'}"]
    if checkpoint.steps_completed < last_step - 1:
        problems.append(f"the checkpoint is of step {checkpoint.steps_completed}, and the last step was {last_step}")
    return problems


if __name__ == "__main__":
    main()
