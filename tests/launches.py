"""Launches of scripts, as processes to look at and to disturb."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import signal
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil
from processes import wait_for
from warm import WarmProcess, WarmProgram, warm_program

_FAILURE = re.compile(
    r"^\[core-sdk\] rank (?P<rank>\d+) of (?P<num_ranks>\d+) failed first "
    r"\(host (?P<host>\S+), pid (?P<pid>\d+)\): it (?P<cause>.*)\n"
    r"(\[core-sdk\] this looks .*\n|\[core-sdk\] hint: .*\n)*"
    r"\[core-sdk\] exit code (?P<code>\d+); (?P<rest>(.*\n)*)\Z",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Failure:
    """What the launcher's last words say."""

    rank: int
    pid: int
    cause: str
    code: int
    stderr: str
    """The rank's, as far as it is shown."""


@dataclass(frozen=True)
class Ended:
    code: int
    stdout: str
    stderr: str

    @property
    def last_words(self) -> str:
        return self.stderr.splitlines()[-1]

    @property
    def failure(self) -> Failure:
        match = _FAILURE.search(self.stderr)
        assert match is not None, f"no rank is named last:\n{self.stderr}"
        shown = re.sub(r"^\[core-sdk\]   ?", "", match["rest"], flags=re.MULTILINE)
        return Failure(int(match["rank"]), int(match["pid"]), match["cause"], int(match["code"]), shown)


class Launch:
    """A launcher at work."""

    def __init__(self, process: WarmProcess) -> None:
        self.pid = process.pid
        self._process = process

    @property
    def output(self) -> str:
        """So far."""
        return self._process.stdout.read_text(errors="replace")

    @property
    def errors(self) -> str:
        """So far."""
        return self._process.stderr.read_text(errors="replace")

    def read_until(self, *lines: str) -> None:
        """Blocks until the ranks have printed all of these lines."""
        wait_for(lambda: set(lines) <= set(self.output.splitlines()))

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)

    def wait(self) -> Ended:
        """Waits for its end. The returned status is -N if it was itself killed by signal N."""
        code = self.wait_for_code()
        return Ended(code, self.output, self.errors)

    def wait_for_code(self) -> int:
        """Waits for the exit code of a launch whose output is not to be read."""
        return self._process.wait()


class WarmLaunchers:
    """Launchers that need not import torch, forked by a process that has."""

    def __init__(self, program: WarmProgram) -> None:
        self._program = program

    def start(
        self,
        directory: Path,
        source: str,
        arguments: Sequence[str],
        num_ranks: int,
        overrides: Sequence[str] = (),
        *,
        stdout: Path | None = None,
        stderr: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> Launch:
        """`overrides` may end in `--` and another program instead of the script that is given by its source.

        Output goes to the given files, or to new ones. `variables` are added to this process's.
        """
        directory.mkdir(exist_ok=True)
        script, text = directory / "train.py", textwrap.dedent(source)
        # Another launcher may be reading it.
        if not script.exists() or script.read_text() != text:
            script.write_text(text)
        program = () if "--" in overrides else ("--", "train.py")
        command = ["torch_distributed", f"--nproc-per-node={num_ranks}", *overrides, *program, *arguments]
        return self.start_command(directory, *command, stdout=stdout, stderr=stderr, variables=variables)

    def start_command(
        self,
        directory: Path,
        *command: str,
        stdout: Path | None = None,
        stderr: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> Launch:
        """`command` begins with the framework."""
        outer = {name: value for name, value in os.environ.items() if name != "CORE_SDK_RUN_INFO"}
        return Launch(
            self._program.start(
                command,
                directory=directory,
                output_directory=directory,
                variables=outer | dict(variables or {}),
                stdout=stdout,
                stderr=stderr,
                ignores_children=True,
            )
        )


_FRAMEWORKS = ("torch_distributed", "deepspeed", "horovod", "tensorflow")


@contextlib.contextmanager
def launchers() -> Iterator[WarmLaunchers]:
    modules = [f"launch.{framework}" for framework in _FRAMEWORKS]
    with warm_program("launches:main", "launch._torchrun._engine", "torch.distributed", *modules) as program:
        yield WarmLaunchers(program)


def main() -> None:
    """Starts the launcher that has the program's name."""
    importlib.import_module(f"launch.{sys.argv[0]}").main()


class StartLaunch(Protocol):
    def __call__(self, source: str, *arguments: str, num_ranks: int = 2, overrides: Sequence[str] = ()) -> Launch: ...


class RunLaunch(Protocol):
    def __call__(self, source: str, *arguments: str, num_ranks: int = 2, overrides: Sequence[str] = ()) -> Ended: ...


def live_processes(directory: Path) -> list[int]:
    """Returns the processes that work in `directory`: the launcher, its ranks, and what they started."""
    return [process.pid for process in psutil.process_iter() if _lives_in(process, directory)]


def kill_all_in(directory: Path) -> None:
    for pid in live_processes(directory):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _lives_in(process: psutil.Process, directory: Path) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()).is_relative_to(directory)
    except (psutil.Error, OSError):
        return False
