"""Launchers on hosts, one for each, and what the trial's records say in the end."""

from __future__ import annotations

import functools
import operator
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hosts.hosts import Host, HostGroup
from processes import wait_for

from core_sdk.client import Trial

TRAINING = Path(__file__).with_name("training.py")
"""The script of the ranks."""
NUM_SAMPLES = 24
STEPS_PER_EPOCH = 4
EVERY_SAMPLE = (1 << NUM_SAMPLES) - 1

# Each launcher and each rank imports torch, on a machine that may have other things to do.
TIMEOUT_S = 150.0


class NodeLaunch:
    """The launcher of one host, whose output is in files of `folder`."""

    def __init__(self, host: Host, folder: Path, argv: Sequence[str], **variables: str) -> None:
        count = len(list(folder.glob(f"{host.name}-*.out")))
        self._output, self._errors = (folder / f"{host.name}-{count}.{kind}" for kind in ("out", "err"))
        environment = os.environ | {"CORE_SDK_HOME": str(folder / "home")} | variables
        with self._output.open("w") as output, self._errors.open("w") as errors:
            self._process = host.start(argv, env=environment, cwd=folder, stdout=output, stderr=errors)

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    @property
    def errors(self) -> str:
        return self._errors.read_text(errors="replace")

    def read_until(self, words: str) -> None:
        """Blocks until the launcher's ranks have printed these words."""
        wait_for(lambda: words in self.output or self.has_ended(), TIMEOUT_S)
        assert words in self.output, f"it ended with {self._process.returncode}:\n{self.output}\n{self.errors}"

    def await_step(self, step: int) -> None:
        self.read_until(f"step {step}\n")

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout_s: float = TIMEOUT_S) -> int:
        """Returns the exit status of the launcher, or -N for death by signal N."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it has not ended:\n{self.output}\n{self.errors}") from None

    def has_ended(self) -> bool:
        return self._process.poll() is not None


def launcher_argv(options: Sequence[str], step_s: float = 0.05) -> list[str]:
    script = ["--", str(TRAINING), str(step_s)]
    return [sys.executable, "-m", "launch.torch_distributed", "--nproc-per-node=1", *options, *script]


def fixed(num_nodes: int, node_rank: int, *options: str) -> list[str]:
    """Returns torchrun's options for a training on these hosts, or none."""
    return [f"--nnodes={num_nodes}", f"--node-rank={node_rank}", "--master-addr=10.77.0.1", *options]


def elastic(num_nodes: str, *, meeting_host: Host) -> list[str]:
    """Returns torchrun's options for a training on any number of hosts between two numbers."""
    meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint={meeting_host.address}:29400", "--rdzv-id=elastic"]
    return [f"--nnodes={num_nodes}", *meeting, "--rdzv-conf=last_call_timeout=2", "--max-restarts=3"]


def start_fixed(hosts: HostGroup, folder: Path, *options: str) -> list[NodeLaunch]:
    """Starts a launcher on each of these hosts."""
    return [
        NodeLaunch(host, folder, launcher_argv(fixed(len(hosts), rank, *options))) for rank, host in enumerate(hosts)
    ]


def assert_counted_once(trial: Trial, num_attempts: int) -> None:
    """Checks that each step and each epoch's end is visible once, and that each epoch has had every sample once."""
    trained, validated = (list(trial.iter_metrics(group)) for group in ("training", "validation"))
    steps = [report.steps_completed for report in trained]
    assert steps == list(range(1, len(steps) + 1))
    assert [report.steps_completed for report in validated] == steps[STEPS_PER_EPOCH - 1 :: STEPS_PER_EPOCH]
    assert trained[-1].trial_run_id == num_attempts
    samples = [report.metrics["samples"] for report in trained]
    for start in range(0, len(steps), STEPS_PER_EPOCH):
        assert functools.reduce(operator.xor, samples[start : start + STEPS_PER_EPOCH]) == EVERY_SAMPLE
    totals = [report.metrics["total"] for report in validated]
    assert totals == [sum(range(NUM_SAMPLES)) * (epoch + 1) for epoch in range(len(totals))]
