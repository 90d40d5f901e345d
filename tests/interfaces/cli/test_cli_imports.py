"""What a command imports before it answers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from interfaces.cli.recorded import new_trial

from core_sdk._home import Home

_MODULES = """
import sys
from core_sdk._interfaces.cli import main
sys.argv = ["core-sdk", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("MODULES", *sys.modules)
"""
# Slow to import, or of no use for a table of trials.
_NOT_NEEDED = (
    "asyncio", "core_sdk._analysis", "core_sdk._distributed", "core_sdk._execution", "core_sdk._home.attempts",
    "core_sdk._home.storage", "core_sdk._interfaces.cli.running", "core_sdk._machine", "core_sdk.client",
    "core_sdk.core", "numpy", "requests", "rich.console", "statistics", "torch",
)  # fmt: skip

_NOT_NEEDED_FOR_A_QUEUE = (
    "asyncio", "core_sdk._analysis", "core_sdk._distributed", "core_sdk._execution.experiments.experiment",
    "core_sdk._execution.steering", "core_sdk._ground.config", "core_sdk._home.attempts", "core_sdk._home.index",
    "core_sdk._home.storage",
    "core_sdk._interfaces.cli.ui", "core_sdk._machine.processes", "core_sdk.client", "core_sdk.core",
    "core_sdk.search", "ctypes", "pathspec", "requests",
    "rich.console", "torch", "yaml",
)  # fmt: skip


@pytest.mark.parametrize(
    "command", ["trial list", "trial list --json", "trial describe 1", "trial metrics 1", "--version"]
)
def test_a_command_that_looks_imports_little(tmp_path: Path, command: str) -> None:
    """A command that looks at trials leaves out what only other commands need."""
    modules = modules_after(tmp_path, command)

    allowed = {
        "trial describe 1": {"core_sdk._analysis", "core_sdk._home.attempts"},
        "trial metrics 1": {"core_sdk._home.attempts"},
    }
    assert modules & {*_NOT_NEEDED} <= allowed.get(command, set())


def test_an_empty_queue_imports_little(tmp_path: Path) -> None:
    """Where no search goes on, nothing is imported that carries one out."""
    assert modules_after(tmp_path, "queue list") & {*_NOT_NEEDED_FOR_A_QUEUE} == set()


def modules_after(tmp_path: Path, command: str) -> set[str]:
    home = Home.create(tmp_path / "home")
    new_trial(home)
    done = subprocess.run(
        [sys.executable, "-c", _MODULES, *command.split()],
        env=os.environ | {"CORE_SDK_HOME": str(home.root)}, capture_output=True, text=True, check=True,
    )  # fmt: skip

    modules = set(done.stdout.splitlines()[-1].split())
    assert "core_sdk._interfaces.cli._app" in modules
    return modules
