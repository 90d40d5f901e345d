"""A lab's server in a process of its own, as its users start it."""

from __future__ import annotations

import contextlib
import datetime
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from core_sdk._interfaces.lab.folder import Lab

DAY_S = 86400.0
TIMEOUT_S = 60


@dataclass(frozen=True)
class LabServer:
    """The workspace `vision` is empty, and ada owns it."""

    lab: Lab
    url: str
    process: subprocess.Popen[str]
    token: str

    def get(self, path: str, token: str | None = None, *, stream: bool = False) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.token if token is None else token}"}
        return requests.get(f"{self.url}{path}", headers=headers, stream=stream, timeout=TIMEOUT_S)

    def act(self, path: str, body: Mapping[str, Any]) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.token}", "X-Core-SDK-Action": "1"}
        return requests.post(f"{self.url}{path}", headers=headers, json=dict(body), timeout=TIMEOUT_S)


def new_lab(root: Path) -> tuple[Lab, str]:
    """Returns a lab with an empty workspace, and a token of its owner."""
    lab = Lab.create(root)
    lab.add_workspace("vision")
    lab.people.set_role("vision", "ada", "owner")
    return lab, lab.people.issue("token", "ada", DAY_S, workspace="vision")[0]


@contextlib.contextmanager
def serving_lab(lab: Lab, token: str, *options: str) -> Iterator[LabServer]:
    command = [sys.executable, "-m", "core_sdk._interfaces.cli", "server", "up", str(lab.root)]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip().removesuffix("/")
        assert url, process.communicate()[1]
        yield LabServer(lab, url, process, token)
    finally:
        process.kill()
        process.communicate()


def write_certificate(folder: Path, serial: int) -> list[str]:
    """Writes a certificate of this machine with its key, and returns the options that name them."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(private)
    (folder / "chain.pem").write_bytes(certificate.public_bytes(encoding))
    return [f"--certificate={folder / 'chain.pem'}", f"--key={folder / 'key.pem'}"]
