"""Ranks of one trial as processes of their own, all with the same script."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from processes import TIMEOUT_S

from core_sdk.client import Tracker, Trial

# Long enough for a busy machine, and short enough that a hang is told from a slow test.
CHANNEL_TIMEOUT_S = 30

_PRELUDE = f"""
import logging, os, signal, sys, time
from pathlib import Path
from core_sdk import core
from core_sdk.errors import *

logging.basicConfig(level="INFO", format="%(levelname)s %(message)s", stream=sys.stderr)
rank, size, num_nodes = map(int, sys.argv[1:4])
timeout_s = float(sys.argv[5])
distributed = core.DistributedContext(
    rank=rank, size=size,
    local_rank=rank % (size // num_nodes), local_size=size // num_nodes,
    cross_rank=rank // (size // num_nodes), cross_size=num_nodes,
    rendezvous=sys.argv[4], chief_ip="127.0.0.1",
    timeout_s=timeout_s, join_timeout_s={CHANNEL_TIMEOUT_S},
)

"""


@dataclass(frozen=True)
class Ended:
    """How one rank's process ended."""

    code: int
    output: str
    errors: str


def codes(ended: Sequence[Ended]) -> list[int]:
    return [one.code for one in ended]


def the_trial() -> Trial:
    """Returns the only trial in the home."""
    (experiment,) = Tracker().list_experiments()
    assert experiment.num_trials == 1
    return Tracker().get_trial(1)


class Ranks:
    """Starts scripts in which `core`, all errors, `distributed` and `rank` are at hand."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started: list[subprocess.Popen[str]] = []
        # Ranks meet in it only if it is private.
        self._meeting = directory / "meeting"
        self._meeting.mkdir(mode=0o700)

    def run(self, source: str, size: int = 2, **options: object) -> list[Ended]:
        """Runs all ranks to their end."""
        return [self.wait(process) for process in self.start(source, size, **options)]  # type: ignore[arg-type]

    def start(
        self,
        source: str,
        size: int = 2,
        *,
        num_nodes: int = 1,
        variables: Mapping[int, Mapping[str, str]] | None = None,
        wrappers: Mapping[int, Sequence[str]] | None = None,
        timeout_s: float = CHANNEL_TIMEOUT_S,
    ) -> list[subprocess.Popen[str]]:
        """Starts all ranks; `variables` and `wrappers` (commands put before the script) are given per rank."""
        script = self._directory / "train.py"
        script.write_text(_PRELUDE + textwrap.dedent(source))
        arguments = [str(size), str(num_nodes), str(self._meeting), str(timeout_s)]
        processes = [
            subprocess.Popen(
                [*(wrappers or {}).get(rank, ()), sys.executable, "-u", str(script), str(rank), *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | dict((variables or {}).get(rank, {})),
                cwd=self._directory,
            )
            for rank in range(size)
        ]
        self._started += processes
        return processes

    def wait(self, process: subprocess.Popen[str]) -> Ended:
        output, errors = process.communicate(timeout=TIMEOUT_S)
        return Ended(process.returncode, output, errors)

    def kill(self) -> None:
        """Kills the processes that still run."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()
