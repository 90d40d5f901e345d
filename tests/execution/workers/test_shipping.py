"""What workers record on a host that does not see the home comes home, whatever dies."""

from __future__ import annotations

import contextlib
import os
import signal
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from execution.workers.ray_hosts import RayHosts, ray_hosts
from hosts.hosts import Host
from parts import needs
from processes import Script, wait_for

from core_sdk._ground.records import Report
from core_sdk._home import Home, open_view
from core_sdk._home.journal import read_records
from core_sdk.client import Tracker

# The hosts and their cluster take a minute to start.
pytestmark = needs("ray", "hosts")

_BEGINNING = """
import os, signal, sys, tempfile, time
from pathlib import Path
from core_sdk import train
from core_sdk.train.torch import TorchTrainer

HERE = Path(os.environ["CORE_SDK_HOME"]).parent

def fit(function, num_workers=1, resources={"CPU": 1, "away": 1}, strategy="PACK", max_failures=0):
    scaling = train.ScalingConfig(
        num_workers=num_workers, engine="ray", address=ADDRESS, resources_per_worker=resources,
        placement_strategy=strategy,
    )
    run = train.RunConfig(failure_config=train.FailureConfig(max_failures=max_failures))
    return TorchTrainer(function, scaling_config=scaling, run_config=run).fit()

def report(step, has_checkpoint):
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "step").write_text(str(step))
        checkpoint = train.Checkpoint.from_directory(directory) if has_checkpoint else None
        train.report({"step": step}, checkpoint=checkpoint)

def first_step():
    if (checkpoint := train.get_checkpoint()) is None:
        return 0
    with checkpoint.as_directory() as directory:
        return int((Path(directory) / "step").read_text()) + 1

"""


@pytest.fixture(scope="module")
def two_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayHosts]:
    with ray_hosts(tmp_path_factory.mktemp("homes"), 2) as cluster:
        yield cluster


@pytest.fixture
def cluster(two_hosts: RayHosts, tmp_path: Path) -> RayHosts:
    return two_hosts.for_test(tmp_path)


def start(cluster: RayHosts, source: str) -> Script:
    """Starts a program on the first host."""
    return cluster.start(f"ADDRESS = {cluster.address!r}\n" + _BEGINNING + textwrap.dedent(source))


def run(cluster: RayHosts, source: str) -> list[str]:
    """Runs a program on the first host to its end and returns its output."""
    code, output, errors = start(cluster, source).wait()
    assert code == 0, f"exit status {code}\n{output}\n{errors}"
    return output.splitlines()


def reported(journal: Path) -> list[int]:
    """Returns the steps of a journal's reports."""
    return [record.steps_completed for record in read_records(journal) if isinstance(record, Report)]


def steps_at(home: Path, trial_id: int = 1) -> list[int]:
    """Returns the steps that the trial has reported, without those that were superseded."""
    return [int(each.metrics["step"]) for each in Tracker(home).get_trial(trial_id).iter_metrics("training")]


def trials_left(cluster: RayHosts) -> list[str]:
    """Returns the trials of which something is left on the second host."""
    return [trial.name for trial in (cluster.spool_of(1) / "runs").iterdir()]


def test_reports_and_checkpoints_of_another_host_come_home(cluster: RayHosts) -> None:
    """All reports and checkpoints of a worker on another host, even a killed one, arrive once, and none stay there."""
    output = run(
        cluster,
        """
        def function():
            first = first_step()
            for step in range(first, 20):
                report(step, has_checkpoint=step % 10 == 4)
                if step == 6 and not first:
                    os.kill(os.getpid(), signal.SIGKILL)
            return os.uname().nodename, first

        result = fit(function, max_failures=1)
        with result.checkpoint.as_directory() as directory:
            print(*result.return_value, len(result.metrics_dataframe), (Path(directory) / "step").read_text())
    """,
    )

    assert output[-1] == "h2 5 20 14"
    assert steps_at(cluster.home) == list(range(20))
    assert trials_left(cluster) == []


def test_reports_of_every_rank_come_home(cluster: RayHosts) -> None:
    """Reports of ranks on both hosts come home, also a killed rank's."""
    run(
        cluster,
        """
        def function():
            context = train.get_context().core_context
            for step in range(1, 61):
                context.train.report_training_metrics(steps_completed=step, metrics={"loss": step})
                if step == 30 and train.get_context().get_world_rank() == 1 and context.info.trial.attempt == 1:
                    os.kill(os.getpid(), signal.SIGKILL)

        fit(function, num_workers=2, resources={"CPU": 1}, strategy="STRICT_SPREAD", max_failures=1)
    """,
    )

    with open_view(Home(cluster.home)) as view:
        assert view.outline(1).reporting_ranks == [0, 1]
    folder = Home(cluster.home).folder(1)
    assert reported(folder.journal_path(1, 1)) == list(range(1, 31))
    for rank in (0, 1):
        assert reported(folder.journal_path(2, rank)) == list(range(1, 61))
    assert trials_left(cluster) == []


def test_a_checkpoint_is_brought_to_all_hosts_of_a_training_that_goes_on(cluster: RayHosts) -> None:
    """A resumed training finds its checkpoint on all hosts, whichever of them has rank 0."""
    output = run(
        cluster,
        """
        def function():
            import torch, torch.distributed as dist
            first = first_step()
            host = torch.tensor([int(os.uname().nodename[1:])])
            dist.all_reduce(host)
            for step in range(first, 4):
                train.report({"step": step})
            if first == 0:
                is_chief = train.get_context().get_world_rank() == 0
                report(4, has_checkpoint=True) if is_chief else train.report({"step": 4})
                train.collective.barrier()
                if not is_chief:
                    raise ValueError("again")
                time.sleep(600)
            return first, host.item()

        print(fit(function, 2, {"CPU": 1}, "STRICT_SPREAD", max_failures=1).return_value)
    """,
    )

    assert output[-1] == "(5, 3)"
    assert steps_at(cluster.home) == list(range(5))


def test_a_wish_to_stop_reaches_a_host_that_does_not_see_it(cluster: RayHosts) -> None:
    """A stop request reaches a host that does not see the home."""
    program = start(
        cluster,
        """
        def function():
            step = 0
            while True:
                report(step, has_checkpoint=step % 20 == 0)
                time.sleep(0.02)
                step += 1

        print(fit(function).is_stopped)
    """,
    )
    journal = Home(cluster.home).folder(1).journal_path(1)
    wait_for(lambda: journal.exists() and '"report"' in journal.read_text())

    Home(cluster.home).trial(1).request_stop(1, "a test")
    code, output, errors = program.wait()

    assert code == 0, errors
    assert output.splitlines()[-1] == "True"
    assert '"outcome":"paused"' in journal.read_text()


def test_a_writer_on_another_host_is_not_shown_as_dead(cluster: RayHosts) -> None:
    """A program that a worker has started there reports, too; its state is unknown at home until its end comes."""
    program = start(
        cluster,
        """
        WRITER = '''
        import sys
        from core_sdk import core
        with core.init(trial=1, writer="child") as context:
            context.train.report_validation_metrics(1, {"accuracy": 0.5})
            sys.stdin.read()
        '''

        def function():
            import subprocess
            child = subprocess.Popen([sys.executable, "-c", WRITER], stdin=subprocess.PIPE)
            while not train.get_context().core_context.preempt.should_preempt():
                time.sleep(0.02)
            child.communicate()

        fit(function)
    """,
    )
    home = Home(cluster.home)
    journal = home.folder(1).journal_path(1, "child")
    wait_for(lambda: journal.exists() and '"report"' in journal.read_text())
    with open_view(home) as view:
        (alive,) = view.trial(1).writers

    home.trial(1).request_stop(1, "a test")
    code, _, errors = program.wait()

    assert code == 0, errors
    with open_view(home) as view:
        (ended,) = view.trial(1).writers
    assert (alive.host, alive.state, ended.state) == ("h2", "UNKNOWN", "COMPLETED")


def test_what_a_killed_program_has_left_comes_home_with_the_next_one(cluster: RayHosts) -> None:
    """Records that a killed program left on another host come home with the next program."""
    program = start(
        cluster,
        """
        def function():
            for step in range(10_000_000):
                report(step, has_checkpoint=False)
                time.sleep(0.01)

        print(os.getpid(), flush=True)
        fit(function)
    """,
    )
    journal = Home(cluster.home).folder(1).journal_path(1)
    wait_for(lambda: journal.exists() and '"report"' in journal.read_text())
    os.kill(program.process.pid, signal.SIGSTOP)
    size = journal.stat().st_size
    spooled = cluster.spool_of(1) / "runs/1/1.journal"
    wait_for(lambda: spooled.stat().st_size > 2 * size + 10_000)
    program.process.kill()
    program.wait()
    wait_for(lambda: not any("local/_worker.py" in command for command in commands_of(cluster.hosts[1])))
    written = spooled.read_bytes()

    run(cluster, "fit(lambda: report(0, has_checkpoint=False))")

    assert journal.read_bytes() == written[: written.rfind(b"\n") + 1]
    assert len(written) > 2 * size
    assert trials_left(cluster) == []


def test_a_training_whose_host_dies_goes_on_on_another_one(tmp_path: Path) -> None:
    """If a host dies, the training resumes on another one from the newest checkpoint at home."""
    with ray_hosts(tmp_path, 3) as cluster:
        program = start(
            cluster,
            """
            def function():
                first = first_step()
                host = os.uname().nodename
                for step in range(first, 100):
                    report(step, has_checkpoint=step % 5 == 4)
                    time.sleep(0.1)
                    (HERE / "running").write_text(f"{host} {step}")
                return host, first

            print(*fit(function, max_failures=1).return_value)
        """,
        )
        checkpoints = cluster.home / "checkpoints"
        wait_for(lambda: checkpoints.exists() and len(list(checkpoints.glob("*/step"))) >= 3)
        host = (tmp_path / "running").read_text().split()[0]

        cluster.hosts[int(host[1:]) - 1].kill()
        code, output, errors = program.wait()

    assert code == 0, errors
    other, first = output.split()[-2:]
    assert {host, other} == {"h2", "h3"}
    assert int(first) >= 15
    assert steps_at(cluster.home) == list(range(100))


def commands_of(host: Host) -> list[str]:
    commands = []
    for pid in host.living():
        with contextlib.suppress(psutil.NoSuchProcess):
            commands.append(" ".join(psutil.Process(pid).cmdline()))
    return commands
