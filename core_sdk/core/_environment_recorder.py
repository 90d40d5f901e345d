"""Records the code and the machine of an attempt, in a thread of its own: git may take long."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import platform
import socket
import subprocess
import sys
import threading
from pathlib import Path

from core_sdk.records import EnvironmentRecord
from core_sdk.tracking import TrialFolder

logger = logging.getLogger("core_sdk.core")

_GIT_TIMEOUT_S = 10.0
# What a script that ends at once waits for.
_CLOSE_TIMEOUT_S = 1.0
_PACKAGES = (
    "core-sdk",
    "torch",
    "numpy",
    "lightning",
    "pytorch-lightning",
    "transformers",
    "accelerate",
    "deepspeed",
    "horovod",
)


class EnvironmentRecorder:
    """Begins with `start`; what it cannot find out is left empty."""

    def __init__(self, folder: TrialFolder, attempt: int) -> None:
        self._folder = folder
        self._attempt = attempt
        self._thread = threading.Thread(target=self._record, name="core-sdk-environment", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Waits for the record for a moment."""
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_TIMEOUT_S)

    def _record(self) -> None:
        try:
            self._folder.write_environment(self._attempt, find_environment(script_directory()))
        except OSError as error:
            logger.info("the environment of attempt %d was not recorded: %s", self._attempt, error)


def find_environment(directory: Path) -> EnvironmentRecord:
    """What this process runs with; `directory` is where its script lies."""
    commit, is_dirty = _git(directory)
    return EnvironmentRecord(
        git_commit=commit,
        git_is_dirty=is_dirty,
        python=platform.python_version(),
        packages=_versions(),
        host=socket.gethostname(),
        num_cpus=os.cpu_count() or 0,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        gpus=tuple(_gpus()),
    )


def script_directory() -> Path:
    """The working directory in a notebook."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    return Path(script).absolute().parent if script else Path.cwd()


def _git(directory: Path) -> tuple[str, bool | None]:
    """The commit, and whether files that git knows have changed since."""
    command = ["git", "--no-optional-locks", "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    try:
        answer = subprocess.run(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_GIT_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):  # no git, no repository, or one that is too slow
        return "", None
    lines = answer.stdout.decode(errors="replace").splitlines()
    commit = next((line.rpartition(" ")[2] for line in lines if line.startswith("# branch.oid ")), "")
    return commit.replace("(initial)", ""), any(not line.startswith("# ") for line in lines)


def _versions() -> dict[str, str]:
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _gpus() -> list[str]:
    """Empty unless the script has begun to use them: asking torch earlier would claim memory on each."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return []
    return [cuda.get_device_name(index) for index in range(cuda.device_count())]
