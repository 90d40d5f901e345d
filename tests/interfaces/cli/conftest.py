"""The command line and the scripts that it starts, in the test's own directory."""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from interfaces.cli.commands import Cli, StartCli, WarmCli, WriteScript, start_cli_in
from processes import Script, kill_tree


@pytest.fixture
def cli(tmp_path: Path, warm_cli: WarmCli) -> Cli:
    """Runs `core-sdk` with these arguments to its end."""
    return functools.partial(warm_cli.run, tmp_path)


@pytest.fixture
def start_cli(tmp_path: Path) -> Iterator[StartCli]:
    """Starts `core-sdk` with these arguments; what still runs at the end of the test is killed."""
    started: list[Script] = []

    def start(*arguments: str) -> Script:
        started.append(start_cli_in(tmp_path, *arguments))
        return started[-1]

    yield start
    for script in started:
        kill_tree(script.process.pid)
        script.process.communicate()


@pytest.fixture
def write_script(tmp_path: Path) -> WriteScript:
    """Writes a training script, `train.py`."""

    def write(source: str) -> Path:
        path = tmp_path / "train.py"
        path.write_text(textwrap.dedent(source))
        return path

    return write
