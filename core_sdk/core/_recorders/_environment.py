"""Records the code and the machine of an attempt, in a thread of its own: git may take long."""

from __future__ import annotations

import contextlib
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
_GIT_LOOK_MS = 100.0
# The commit is known at once; to look for changes may take git minutes in a large repository.
_GIT = """LC_ALL=C; export LC_ALL
git rev-parse --quiet --verify HEAD && exec git --no-optional-locks status --porcelain --untracked-files=no"""
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_CHANGE = re.compile(r"[ MTADRCU]{2} ")
_CHUNK_BYTES = 1 << 16
# How long a script that ends at once waits for git, and then for the record.
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
        self._closing = threading.Event()

    def start(self) -> None:
        # Not in the thread: Python starts a process with signals blocked. If git ends before the thread unblocks them,
        # its SIGCHLD interrupts the main thread, and unbuffered Python drops the rest of a `print` that is interrupted.
        git = start_git(script_directory())
        # Nor this: it evaluates texts, and then Python does not end by SIGINT after a `KeyboardInterrupt`.
        import importlib.metadata  # noqa: F401 - slow to import

        self._thread = threading.Thread(target=self._record, args=[git], name="core-sdk-environment", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Waits for the record, and at most a second for what git has not said yet."""
        if self._thread is not None:
            self._thread.join(_CLOSE_TIMEOUT_S)
            self._closing.set()
            self._thread.join(_CLOSE_TIMEOUT_S)

    def _record(self, git: Git | None) -> None:
        try:
            self._folder.write_environment(self._attempt, find_environment(git, self._closing))
        except OSError as error:
            logger.info("the environment of attempt %d was not recorded: %s", self._attempt, error)


def find_environment(git: Git | None, is_over: threading.Event | None = None) -> EnvironmentRecord:
    """Returns the code, the packages and the machine of this process; `git` is what `start_git` has returned.

    What git has not said once `is_over` is set is unknown.
    """
    commit, is_dirty, problem = ("", None, "git cannot be executed") if git is None else _code(git, is_over)
    return EnvironmentRecord(
        git_commit=commit,
        git_is_dirty=is_dirty,
        git_problem=problem,
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
    read, write = os.pipe()
    answer = KeptDescriptor(read)
    try:
        process = subprocess.Popen(
            ["sh", "-c", _GIT], cwd=directory, stdin=subprocess.DEVNULL, stdout=write, stderr=write
        )
    except OSError:
        answer.close()
        return None
    finally:
        os.close(write)
    return Git(process, answer)


def _code(git: Git, is_over: threading.Event | None) -> tuple[str, bool | None, str]:
    """Returns the commit, whether files that git tracks have changed since, and why one of these is unknown."""
    lines = _answer(git, is_over).decode(errors="replace").splitlines()
    commit = lines.pop(0) if lines and _COMMIT.fullmatch(lines[0]) else ""
    if git.process.returncode == 0:
        return commit, any(map(_CHANGE.match, lines)), ""
    told = next((line.removeprefix("fatal: ") for line in lines if line.startswith("fatal: ")), "")
    if told.startswith("not a git repository"):
        return "", None, ""
    if git.process.returncode < 0:
        told = "git had not found all changes in time" if commit else "git did not answer in time"
    return commit, None, told or "; ".join(lines) or "the repository has no commit"


def _answer(git: Git, is_over: threading.Event | None) -> bytes:
    answer, deadline = b"", time.monotonic() + _GIT_TIMEOUT_S
    poller = select.poll()
    poller.register(git.answer, select.POLLIN)
    with contextlib.suppress(OSError):  # the script has closed it
        while time.monotonic() < deadline:
            if poller.poll(_GIT_LOOK_MS):
                if not (chunk := os.read(git.answer.checked(), _CHUNK_BYTES)):
                    break
                answer += chunk
            # A process that git has left behind may hold the pipe open.
            elif git.process.poll() is not None or (is_over is not None and is_over.is_set()):
                break
    git.answer.close()
    try:
        git.process.wait(0.1 if is_over is not None and is_over.is_set() else max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        git.process.kill()
        git.process.wait()
    return answer


def _versions() -> dict[str, str]:
    import importlib.metadata  # slow to import

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
