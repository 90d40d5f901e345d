"""Records the code and the machine of an attempt, in a thread of its own: git may take long."""

from __future__ import annotations

import contextlib
import importlib.metadata
import logging
import os
import platform
import re
import select
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from core_sdk._ground.descriptors import KeptDescriptor
from core_sdk._ground.environment import visible_gpus
from core_sdk._ground.records import EnvironmentRecord
from core_sdk._home import TrialFolder

logger = logging.getLogger("core_sdk.core")

_DRIVER = Path("/proc/driver/nvidia/gpus")
_GIT_TIMEOUT_S = 10.0
_CHUNK_BYTES = 1 << 16
# How long a script that ends at once waits for the record.
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


class Git(NamedTuple):
    """A process of git, and the pipe from which its answer comes."""

    process: subprocess.Popen[bytes]
    answer: KeptDescriptor


class EnvironmentRecorder:
    """Records the code and the machine of an attempt in a thread; what it cannot find out is left empty."""

    def __init__(self, folder: TrialFolder, attempt: int) -> None:
        self._folder = folder
        self._attempt = attempt
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        # Not in the thread: Python starts a process with signals blocked. If git ends before the thread unblocks them,
        # its SIGCHLD interrupts the main thread, and unbuffered Python drops the rest of a `print` that is interrupted.
        git = start_git(script_directory())
        self._thread = threading.Thread(target=self._record, args=[git], name="core-sdk-environment", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Waits for the record, but at most a second."""
        if self._thread is not None:
            self._thread.join(_CLOSE_TIMEOUT_S)

    def _record(self, git: Git | None) -> None:
        try:
            self._folder.write_environment(self._attempt, find_environment(git))
        except OSError as error:
            logger.info("the environment of attempt %d was not recorded: %s", self._attempt, error)


def find_environment(git: Git | None) -> EnvironmentRecord:
    """Returns the code, the packages and the machine of this process; `git` is what `start_git` has returned."""
    commit, is_dirty = _code(git)
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
    """Returns the directory of the script; in a notebook, the working directory."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    return Path(script).parent if script else Path()


def start_git(directory: Path) -> Git | None:
    """Asks git for the commit and for changes in the script's `directory`; returns None if there is no git."""
    command = ["git", "--no-optional-locks", "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    read, write = os.pipe()
    answer = KeptDescriptor(read)
    try:
        process = subprocess.Popen(
            command, cwd=directory, stdin=subprocess.DEVNULL, stdout=write, stderr=subprocess.DEVNULL
        )
    except OSError:
        answer.close()
        return None
    finally:
        os.close(write)
    return Git(process, answer)


def _code(git: Git | None) -> tuple[str, bool | None]:
    """Returns the commit, and whether files that git tracks have changed since."""
    if git is None:
        return "", None
    answer = _answer(git)
    if git.process.returncode != 0:  # no repository, or one that is too slow
        return "", None
    lines = answer.decode(errors="replace").splitlines()
    commit = next((line.rpartition(" ")[2] for line in lines if line.startswith("# branch.oid ")), "")
    return commit.replace("(initial)", ""), any(not line.startswith("# ") for line in lines)


def _answer(git: Git) -> bytes:
    answer, deadline = b"", time.monotonic() + _GIT_TIMEOUT_S
    poller = select.poll()
    poller.register(git.answer, select.POLLIN)
    with contextlib.suppress(OSError):  # the script has closed it
        while poller.poll(1000 * max(0.0, deadline - time.monotonic())):
            if not (chunk := os.read(git.answer.checked(), _CHUNK_BYTES)):
                break
            answer += chunk
    git.answer.close()
    try:
        git.process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        git.process.kill()
        git.process.wait()
    return answer


def _versions() -> dict[str, str]:
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _gpus() -> list[str]:
    """Returns the names of the GPUs that this process may use.

    Torch, which would claim memory on each to answer, is asked only if the script uses them already. Otherwise they are
    what NVIDIA's driver says in Linux's /proc.
    """
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        return [cuda.get_device_name(index) for index in range(cuda.device_count())]
    visible = visible_gpus()
    found = []
    for index, file in enumerate(sorted(_DRIVER.glob("*/information"))):
        told = dict(re.findall(r"^(.+?):\s*(.+?)\s*$", file.read_text(), re.MULTILINE))
        if visible is None or str(index) in visible or any(told["GPU UUID"].startswith(name) for name in visible):
            found.append(told["Model"])
    return found
