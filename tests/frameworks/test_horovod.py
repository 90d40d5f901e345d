"""The real Horovod, built against this torch: under our launcher, and under its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest
from frameworks.environments import FrameworkEnvironment
from launches import Ended, kill_all_in, live_processes
from processes import wait_for

from core_sdk._home import Home

# Two ranks import torch and Horovod, on a machine that may have other things to do.
_TIMEOUT_S = 150.0

_COLLECTIVES = """
import json, os, sys
import torch, horovod.torch as hvd
from core_sdk.core import DistributedContext
from core_sdk.errors import JoinError

try:
    DistributedContext.from_horovod(hvd)
except JoinError as error:
    refused = str(error)

hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Linear(3, 1)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.full((2, 3), float(hvd.rank()))).sum().backward()
    optimizer.step()
ranks_sum = hvd.allreduce(torch.tensor([float(hvd.rank())]), op=hvd.Sum).item()
with DistributedContext.from_horovod(hvd) as distributed:
    said = {
        "refused": refused,
        "place": [distributed.rank, distributed.local_rank, distributed.cross_rank, distributed.cross_size],
        "sum": ranks_sum,
        "weights": distributed.allgather(model.weight.tolist()),
        "all": distributed.allgather(hvd.rank()),
        "node": distributed.allgather_local(hvd.rank()),
        "chief": distributed.broadcast(f"rank {hvd.rank()}"),
        "fusion": os.environ.get("HOROVOD_FUSION_THRESHOLD"),
        "port": int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"]),
    }
with open(f"said.{hvd.rank()}", "w") as file:
    json.dump(said, file)
"""

_ALIVE = """
import os, signal, socket, sys, time
import torch, horovod.torch as hvd
hvd.init()
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port))) == 0
def reduce():
    hvd.allreduce(torch.ones(10), name="x")
"""

_TRAINING = """
import torch, horovod.torch as hvd
from core_sdk import core

hvd.init()
model = torch.nn.Linear(3, 1)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
with core.DistributedContext.from_horovod(hvd) as distributed, core.init(distributed=distributed) as context:
    first, length = 0, 1_000_000
    if context.info.latest_checkpoint is not None:
        with context.checkpoint.restore_path(context.info.latest_checkpoint) as path:
            first = int((path / "steps").read_text())
        length = first + 3
    print("begins with", first, flush=True)
    for step in range(first + 1, length + 1):
        optimizer.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        if step == 2:
            print("trains", flush=True)
        if context.preempt.should_preempt():
            if distributed.is_chief:
                with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
                    (path / "steps").write_text(str(step))
            print("stops at", step, flush=True)
            break
"""

_TRIAL = """
import json, sys
import torch
from torch.utils.data import TensorDataset
from core_sdk import pytorch
from core_sdk.pytorch._context import run_of

class LineTrial(pytorch.PyTorchTrial):
    def __init__(self, context, stop_after):
        self.context, self.stop_after, self.losses = context, stop_after, []
        self.model = context.wrap_model(torch.nn.Linear(1, 1), find_unused_parameters=True)
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.001))

    def build_training_data_loader(self):
        x = torch.arange(16.0).unsqueeze(1)
        return pytorch.DataLoader(TensorDataset(x, 2 * x), 2, shuffle=True)

    build_validation_data_loader = build_training_data_loader

    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = ((self.model(batch[0]) - batch[1]) ** 2).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        self.losses.append(loss.item())
        if batch_idx == self.stop_after:
            self.context.set_stop_requested(True)
        return loss

    def evaluate_batch(self, batch):
        return {"error": (self.model(batch[0]) - batch[1]).abs().mean()}

with pytorch.init(job_id=sys.argv[1], aggregation_frequency=3) as context:
    context.core_context.info.trial.trial_seed = 17
    torch.manual_seed(17 + context.distributed.rank)
    trial = LineTrial(context, int(sys.argv[2]))
    pytorch.Trainer(trial, context).fit(max_length=pytorch.Epoch(2))
    said = [type(run_of(context).runtime.strategy).__name__, trial.losses, trial.model.weight.item()]
with open(f"said.{context.distributed.rank}", "w") as file:
    json.dump(said, file)
"""


class HorovodLaunch:
    """A launcher at work, in a process of its own whose output is in files."""

    def __init__(self, argv: Sequence[str], folder: Path, variables: dict[str, str]) -> None:
        count = len(list(folder.glob("*.out")))
        self._output, self._errors = (folder / f"{count}.{kind}" for kind in ("out", "err"))
        with self._output.open("w") as output, self._errors.open("w") as errors:
            self.process = subprocess.Popen(argv, cwd=folder, env=variables, stdout=output, stderr=errors)

    def read_until(self, *lines: str) -> None:
        wait_for(lambda: self._has_said(lines) or self.process.poll() is not None, _TIMEOUT_S)
        assert self._has_said(lines), self._ended()

    def wait(self) -> Ended:
        try:
            self.process.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it has not ended: {self._ended()}") from None
        return self._ended()

    def _has_said(self, lines: Sequence[str]) -> bool:
        return set(lines) <= set(self._output.read_text(errors="replace").splitlines())

    def _ended(self) -> Ended:
        code = self.process.returncode
        return Ended(code, self._output.read_text(errors="replace"), self._errors.read_text(errors="replace"))


class Launches(Protocol):
    def __call__(
        self, source: str, *arguments: str, overrides: Sequence[str] = ("-np", "2"), **variables: str
    ) -> HorovodLaunch: ...


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where the ranks of this test work. All that still does is killed at the end of the test."""
    folder = tmp_path / "launch"
    folder.mkdir()
    yield folder
    kill_all_in(folder)


@pytest.fixture
def start(horovod: FrameworkEnvironment, folder: Path) -> Iterator[Launches]:
    """Launches a script given by its source, on two ranks."""
    launches = []

    def start(source: str, *arguments: str, overrides: Sequence[str] = ("-np", "2"), **variables: str) -> HorovodLaunch:
        (folder / "train.py").write_text(textwrap.dedent(source))
        argv = [str(horovod.python), "-m", "launch.horovod", *overrides, "--", "train.py", *arguments]
        launches.append(HorovodLaunch(argv, folder, {**os.environ, **horovod.variables(), **variables}))
        return launches[-1]

    yield start
    for launch in launches:
        if launch.process.poll() is None:
            launch.process.kill()
        launch.process.wait()


def said(folder: Path, num_ranks: int = 2) -> list[dict[str, object]]:
    return [json.loads((folder / f"said.{rank}").read_text()) for rank in range(num_ranks)]


def check_collectives(folder: Path) -> None:
    ranks = said(folder)
    assert [rank["place"] for rank in ranks] == [[0, 0, 0, 1], [1, 1, 0, 1]]
    for rank in ranks:
        weights = rank["weights"]
        assert isinstance(weights, list)
        assert weights[0] == weights[1]
        assert (rank["sum"], rank["all"], rank["node"], rank["chief"]) == (1.0, [0, 1], [0, 1], "rank 0")
        assert "hvd.init()" in str(rank["refused"])


def listens(port: object) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(str(port)))) == 0


def test_ranks_train_together_and_hear_of_options(start: Launches, folder: Path) -> None:
    """Parameters, gradients and our own collectives are right; the fusion threshold and the timeline are as asked."""
    launch = start(
        _COLLECTIVES, overrides=["-np", "2", "--fusion-threshold-mb", "3", "--timeline-filename", "timeline.json"]
    )

    ended = launch.wait()

    assert ended.code == 0, ended
    check_collectives(folder)
    assert [rank["fusion"] for rank in said(folder)] == [str(3 << 20)] * 2
    assert "NEGOTIATE_ALLREDUCE" in (folder / "timeline.json").read_text()


def test_a_killed_rank_is_named_and_takes_all_with_it(start: Launches, folder: Path) -> None:
    """When a rank is killed, the launcher names it, ends the others, and leaves no process or server."""
    port = "print(os.environ['HOROVOD_GLOO_RENDEZVOUS_ADDR'], os.environ['HOROVOD_GLOO_RENDEZVOUS_PORT'])\n"
    die = "    if hvd.rank() == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
    launch = start(_ALIVE + port + "while True:\n    reduce()\n" + die)

    ended = launch.wait()

    assert (ended.code, ended.failure.rank) == (137, 1), ended
    (address, number) = ended.stdout.splitlines()[0].split()[1:]
    assert (address, listens(number)) == ("127.0.0.1", False)
    assert live_processes(folder) == []


def stopped(launch: HorovodLaunch) -> list[str]:
    """Returns the steps at which its ranks stopped when they were asked to."""
    launch.read_until("[rank=0] trains", "[rank=1] trains")
    launch.process.send_signal(signal.SIGTERM)
    ended = launch.wait()
    assert ended.code == 75, ended
    return [line.split("stops at ")[1] for line in ended.stdout.splitlines() if "stops at" in line]


def test_a_stop_ends_with_a_checkpoint(start: Launches, home: Home) -> None:
    """A stop makes both ranks stop at the same step, store a checkpoint and exit with status 75."""
    launch = start(_TRAINING)

    stops = stopped(launch)

    assert len(stops) == 2
    assert [path.read_text() for path in home.checkpoints.rglob("steps")] == [stops[0]] == [stops[1]]


def test_a_resume_goes_on_from_the_stop(start: Launches) -> None:
    """After a stop, both ranks resume from the chief's checkpoint."""
    step, _ = stopped(start(_TRAINING, CORE_SDK_JOB_ID="digits"))

    ended = start(_TRAINING, CORE_SDK_JOB_ID="digits").wait()

    assert ended.code == 0, ended
    assert sorted(ended.stdout.splitlines())[:1] == [f"[rank=0] begins with {step}"]
    assert f"[rank=1] begins with {step}" in ended.stdout.splitlines()


def test_ranks_are_started_again_with_a_server_of_their_own(start: Launches, folder: Path) -> None:
    """Restarted ranks get a new rendezvous server, and the first start's is gone."""
    die = """
        port = os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"]
        if attempt == 0:
            reduce()
            open(f"port.{hvd.rank()}", "w").write(port)
            if hvd.rank() == 1: os.kill(os.getpid(), signal.SIGKILL)
            while True: reduce()
        reduce()
        print("old", listens(open("port.0").read()), "new", listens(port), flush=True)
    """
    launch = start(_ALIVE + textwrap.dedent(die), PET_MAX_RESTARTS="1")

    ended = launch.wait()

    assert ended.code == 0, ended
    assert sorted(ended.stdout.splitlines()) == [f"[rank={rank}] old False new True" for rank in range(2)]


def test_a_trial_that_is_stopped_within_a_window_goes_on_alike(start: Launches, folder: Path) -> None:
    """A Trial under Horovod that is stopped within an accumulation resumes with the same batches and results."""

    def outcomes(job: str, stop_after: int = -1) -> list[list[Any]]:
        ended = start(_TRIAL, job, str(stop_after)).wait()
        assert ended.code == 0, ended
        return [json.loads((folder / f"said.{rank}").read_text()) for rank in range(2)]

    whole = outcomes("whole")

    first, second = outcomes("stopped", 3), outcomes("stopped")

    for rank in range(2):
        assert whole[rank][0] == "HorovodStrategy"
        assert [*first[rank][1], *second[rank][1]] == whole[rank][1]
        assert second[rank][2] == whole[0][2]


def test_horovodruns_own_ranks_have_a_context_too(horovod: FrameworkEnvironment, folder: Path) -> None:
    """Ranks that horovodrun starts get a Context without our launcher."""
    (folder / "train.py").write_text(_COLLECTIVES)
    argv = [str(horovod.program("horovodrun")), "-np", "2", str(horovod.python), "train.py"]

    ended = HorovodLaunch(argv, folder, {**os.environ, **horovod.variables()}).wait()

    assert ended.code == 0, ended
    check_collectives(folder)


def test_nodes_may_have_different_numbers_of_ranks(start: Launches, folder: Path, free_port: int) -> None:
    """Two ranks and one. Horovod's cross sizes then differ within a node; the context's do not."""
    common = {"PET_NNODES": "2", "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(free_port)}

    launches = [
        start(
            _COLLECTIVES,
            overrides=["--network-interfaces", "lo"],
            PET_NODE_RANK=str(node),
            PET_NPROC_PER_NODE=str(2 - node),
            **common,
        )
        for node in range(2)
    ]

    ended = [launch.wait() for launch in launches]
    assert [end.code for end in ended] == [0, 0], ended
    ranks = said(folder, 3)
    assert [rank["place"] for rank in ranks] == [[0, 0, 0, 2], [1, 1, 0, 2], [2, 0, 1, 2]]
    assert [rank["node"] for rank in ranks] == [[0, 1], [0, 1], [2]]
    assert [rank["all"] for rank in ranks] == [[0, 1, 2]] * 3
