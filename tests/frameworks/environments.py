"""Environments with a framework each, on top of the one in which the tests run: where they are, and how to use them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Framework = Literal["deepspeed", "horovod", "callbacks", "ray"]

STAMP = ".installed"
"""Written when the whole of an environment is there."""


@dataclass(frozen=True)
class FrameworkEnvironment:
    name: Framework
    directory: Path

    @property
    def python(self) -> Path:
        return self.directory / "bin" / "python"

    @property
    def is_installed(self) -> bool:
        return (self.directory / STAMP).exists()

    def program(self, name: str) -> Path:
        """Returns a program of the framework or of Core SDK, run by this environment's python."""
        return self.directory / "bin" / name

    def variables(self) -> Mapping[str, str]:
        """Returns the variables for a process of this environment: as a shell that has activated it."""
        _remove_stale_locks(self._extensions())
        return {
            # DeepSpeed looks for `ninja` there.
            "PATH": f"{self.directory / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            # Otherwise each rank asks the machine what it has, which says so in many lines.
            "DS_ACCELERATOR": "cpu",
            "TORCH_EXTENSIONS_DIR": str(self._extensions()),
            "OMP_NUM_THREADS": "1",
        }

    def run(self, *arguments: str, cwd: Path, timeout_s: float) -> subprocess.CompletedProcess[str]:
        """Runs its python to the end. Returns what it has printed, and its exit status."""
        return subprocess.run(
            [str(self.python), *arguments],
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env={**os.environ, **self.variables()},
        )

    def why_missing(self) -> str | None:
        """Returns the reason to skip a test; None if the environment is there."""
        if self.is_installed:
            return None
        log = self.directory / "install.log"
        why = f"it could not be installed: see {log}" if log.exists() else f"{self.directory} is not there"
        return f"{why}; `make test-integrations` installs it"

    def _extensions(self) -> Path:
        """Returns the directory of what DeepSpeed compiles. Another environment would compile its own."""
        return self.directory / "extensions"


def _remove_stale_locks(extensions: Path) -> None:
    """Removes locks of torch that processes have left which were killed while they loaded an extension."""
    if locks := {str(lock) for lock in extensions.glob("*/lock")}:
        for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
            with contextlib.suppress(OSError):
                locks.discard(str(descriptor.readlink()))
        for stale in locks:
            Path(stale).unlink(missing_ok=True)


def environment(name: Framework) -> FrameworkEnvironment:
    """Returns the framework's environment, which lies next to the tests' own and may not exist."""
    return FrameworkEnvironment(name, Path(sys.prefix) / name)


def cache() -> Path:
    """Returns the cache of what takes minutes to make, outside of the checkout so that a new one finds it."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "core-sdk"
