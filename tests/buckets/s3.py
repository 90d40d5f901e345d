"""Two servers that speak as S3 does: one in memory, one on a disk.

moto answers as S3 does to nearly everything, but checks neither checksums nor credentials, and keeps a wrong checksum
of what came in parts. SeaweedFS checks all of that, but sorts names folder by folder, and goes on listing folders whose
objects are gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from ports import reserved_ports
from processes import wait_for

_ACCESS_KEY = "test-access-key"
_SECRET_KEY = "test-secret-key"
# SeaweedFS is a master, a volume server, a filer, an S3 gateway and an admin page in one process, each with two ports.
_SEAWEED_PARTS = ("s3", "master", "volume", "filer", "admin")


@dataclass(frozen=True)
class S3Server:
    """Whatever listens there and speaks as S3 does."""

    name: str
    address: tuple[str, int]
    client: Any = field(repr=False)
    """boto3's own, for what the adapter does not do."""

    def variables(self, address: tuple[str, int] | None = None) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": _ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET_KEY,
            "AWS_ENDPOINT_URL_S3": _endpoint_url(address or self.address),
            # So that nobody's own configuration plays a part, nor a cloud's that the tests may run in.
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def make_bucket(self, address: tuple[str, int] | None = None) -> str:
        bucket = f"bucket-{uuid.uuid4().hex[:12]}"
        self.client.create_bucket(Bucket=bucket)
        return f"s3://{bucket}/checkpoints"


@contextlib.contextmanager
def start_moto() -> Iterator[S3Server]:
    """Starts moto in memory, in Python; it answers one request after another."""

    def arguments(ports: list[int]) -> list[str]:
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(ports[0])]

    yield from _started("moto", arguments, num_ports=1)


@contextlib.contextmanager
def start_seaweedfs() -> Iterator[S3Server]:
    """Starts SeaweedFS on a disk, in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="seaweedfs-") as directory:
        yield from _started("SeaweedFS", lambda ports: _weed(Path(directory), ports), 2 * len(_SEAWEED_PARTS))


def _weed(directory: Path, ports: list[int]) -> list[str]:
    named = {
        "dir": str(directory),
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "admin.ui": "false",
        "master.telemetry": "false",
        "s3.autoCreateBucket": "false",
        "s3.port.iceberg": "0",
        "s3.port.lance": "0",
        "webdav": "false",
    }
    for index, part in enumerate(_SEAWEED_PARTS):
        named |= {f"{part}.port": str(ports[index]), f"{part}.port.grpc": str(ports[-1 - index])}
    binary = Path(sys.executable).parent / "weed"
    return [str(binary), "mini", *(f"-{name}={value}" for name, value in named.items())]


def _started(name: str, arguments: Callable[[list[int]], list[str]], num_ports: int) -> Iterator[S3Server]:
    with reserved_ports(num_ports) as ports:
        address = ("127.0.0.1", ports[0])
        server = S3Server(name, address, make_client(address))
        process = subprocess.Popen(
            arguments(ports),
            # It serves all tests, and has the home of none.
            env={name: value for name, value in os.environ.items() if name != "CORE_SDK_HOME"} | server.variables(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            wait_for(lambda: process.poll() is not None or _is_serving(server))
            assert process.poll() is None, f"{name} did not start"
            yield server
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            server.client.close()


def make_client(
    address: tuple[str, int], access_key: str = _ACCESS_KEY, secret_key: str = _SECRET_KEY, **settings: Any
) -> Any:
    session = boto3.session.Session(access_key, secret_key, region_name="us-east-1")
    return session.client("s3", endpoint_url=_endpoint_url(address), config=Config(**settings))


def _endpoint_url(address: tuple[str, int]) -> str:
    host, port = address
    return f"http://{host}:{port}"


def _is_serving(server: S3Server) -> bool:
    """Returns whether the server makes buckets: one whose other half is not up yet refuses that, and lists none."""
    with contextlib.suppress(BotoCoreError, ClientError):
        server.make_bucket()
        return True
    return False
