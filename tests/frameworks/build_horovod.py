"""Builds Horovod against the torch that is installed: minutes, so the wheel is kept in a cache.

No wheel of it is published, and its sources ask for a C++ that torch's headers have left behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import IO

VERSION = "0.28.1"
_SHA256 = "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"
_TIMEOUT_S = 3600
_TAIL_LINES = 20

_STANDARD = ("CMAKE_CXX_STANDARD 14", "CMAKE_CXX_STANDARD 20")
_STANDARD_FILES = ("CMakeLists.txt", "horovod/torch/CMakeLists.txt")
# The libraries in Horovod's sources ask for policies that CMake 4 has dropped.
_CMAKE_LEAST, _CMAKE_END = (3, 13), (4, 0)

_CHOICES = {
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITH_PYTORCH": "1",
    "HOROVOD_WITHOUT_MPI": "1",
    "HOROVOD_WITHOUT_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
}


class BuildError(RuntimeError):
    """What went wrong, with the end of what the step has said."""


def horovod_wheel(cache: Path, log: IO[str]) -> Path:
    """For this Python and its torch; built if it is not in the cache. What the tools say goes into `log`.

    Raises `BuildError`, and `OSError` for a cache that cannot be written to.
    """
    place = cache / "wheels" / f"horovod-{VERSION}-torch-{metadata.version('torch')}"
    place.mkdir(parents=True, exist_ok=True)
    with _locked(place / "lock"):
        return _kept(place) or _built(place, log)


def _kept(place: Path) -> Path | None:
    """Returns the wheel, whose name tells the Python and the machine."""
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return next(place.glob(f"horovod-{VERSION}-{tag}-*_{os.uname().machine}.whl"), None)


def _built(place: Path, log: IO[str]) -> Path:
    # Not in the cache: a path with a plus in it, say, is a wrong pattern to Horovod's CMake files.
    with tempfile.TemporaryDirectory(prefix="horovod-build-") as folder:
        build = Path(folder)
        python = _environment(build / "env", log)
        sources = _sources(build, python, log)
        _raise_standard(sources)
        _run([python, "setup.py", "-q", "bdist_wheel"], log, cwd=sources, variables=_variables(build / "env"))
        wheel = next((sources / "dist").glob("*.whl"))
        _check(wheel)
        return _put(wheel, place)


def _check(wheel: Path) -> None:
    """Checks that the MPI library is in the wheel, since setuptools does not notice if CMake put it elsewhere."""
    names = zipfile.ZipFile(wheel).namelist()
    if not any(name.startswith("horovod/torch/mpi_lib") for name in names):
        raise BuildError(f"{wheel.name} was built without horovod/torch/mpi_lib: it has {sorted(names)[-1]}")


def _put(wheel: Path, place: Path) -> Path:
    """Copies the wheel into the cache atomically."""
    part = place / f"{wheel.name}.part"
    shutil.copyfile(wheel, part)
    return part.replace(place / wheel.name)


def _environment(directory: Path, log: IO[str]) -> str:
    """Returns a Python that finds torch, with the tools of a build that need no network of its own."""
    venv.create(directory, symlinks=True, with_pip=False)
    python = str(directory / "bin" / "python")
    own = next(directory.glob("lib/python*/site-packages"))
    # Behind its own packages: torch, and the pip of the tests.
    (own / "layer.pth").write_text(f"{metadata.distribution('torch').locate_file('')}\n")
    tools = ["setuptools<80", "wheel", *([] if _has_cmake(log) else ["cmake<4"])]
    _run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--ignore-installed", *tools], log)
    return python


def _has_cmake(log: IO[str]) -> bool:
    """Returns whether the system's own CMake has a suitable version."""
    if shutil.which("cmake") is None:
        return False
    said = subprocess.run(["cmake", "--version"], stdout=subprocess.PIPE, stderr=log, text=True, check=False).stdout
    found = re.search(r"version (\d+)\.(\d+)", said)
    return found is not None and _CMAKE_LEAST <= (int(found[1]), int(found[2])) < _CMAKE_END


def _sources(build: Path, python: str, log: IO[str]) -> Path:
    requirements = build / "requirements.txt"
    requirements.write_text(f"horovod=={VERSION} --hash=sha256:{_SHA256}\n")
    options = ["-q", "--disable-pip-version-check", "--no-deps", "--no-binary=:all:", "--no-build-isolation"]
    _run([python, "-m", "pip", "download", *options, "-d", str(build), "-r", str(requirements)], log)
    archive = build / f"horovod-{VERSION}.tar.gz"
    if hashlib.sha256(archive.read_bytes()).hexdigest() != _SHA256:
        raise BuildError(f"{archive.name} is not the archive that it was")
    with tarfile.open(archive) as tar:
        tar.extractall(build, filter="data")
    return build / f"horovod-{VERSION}"


def _raise_standard(sources: Path) -> None:
    old, new = _STANDARD
    for name in _STANDARD_FILES:
        path = sources / name
        text = path.read_text()
        if old not in text:
            raise BuildError(f"{name} does not set {old}: these are other sources")
        path.write_text(text.replace(old, new))


def _variables(environment: Path) -> dict[str, str]:
    return {
        **_CHOICES,
        "PATH": f"{environment / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "MAKEFLAGS": f"-j{len(os.sched_getaffinity(0))}",
        # Horovod asks for debug symbols, nine tenths of the library; and the linker can leave them out.
        "LDFLAGS": f"{os.environ.get('LDFLAGS', '')} -Wl,--strip-debug".strip(),
    }


def _run(
    command: Sequence[str], log: IO[str], *, cwd: Path | None = None, variables: Mapping[str, str] | None = None
) -> None:
    log.write(f"$ {' '.join(command)}\n")
    log.flush()
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        ended = _end_of(command, said, cwd, os.environ | dict(variables or {}))
        said.seek(0)
        text = said.read()
    log.write(text)
    log.flush()
    if ended is not None:
        tail = "\n".join(text.splitlines()[-_TAIL_LINES:])
        raise BuildError(f"Horovod {VERSION} could not be built: `{' '.join(command)}` {ended}:\n{tail}")


def _end_of(command: Sequence[str], output: IO[str], cwd: Path | None, variables: Mapping[str, str]) -> str | None:
    """Returns how the command failed, or None if it succeeded."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        code = process.wait(_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"took more than {_TIMEOUT_S} s"
    finally:
        # The compilers that it has started must not outlive it, nor us.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return None if code == 0 else f"ended with {code}"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds the lock of the cache, so that one process builds at a time and others find its wheel."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
