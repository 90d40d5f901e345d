"""Whose name `GcsBucket` acts in, and what it says when nobody's will do."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from buckets.strict_gcs import StrictGcs, start_strict_gcs
from buckets.strict_gcs._answers import NO_CREDENTIALS, Answer, in_json
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from stage import told_of

from core_sdk._home.storage._checksum import checksum
from core_sdk._home.storage.bucket._bucket import Bucket, TransientError
from core_sdk._home.storage.bucket.gcs._bucket import GcsBucket
from core_sdk.errors import CredentialsMissingError, CredentialsRejectedError

TOKEN = "ya29.planted-token"
RENEWED = in_json({"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"})


@pytest.fixture
def server() -> Iterator[StrictGcs]:
    with start_strict_gcs() as server:
        yield server


@pytest.fixture(autouse=True)
def no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the credentials of the user and of the machine."""
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)


@pytest.fixture(scope="module")
def private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


@pytest.fixture
def bucket(
    server: StrictGcs,
    private_key: str,
    open_bucket: Callable[[str], Bucket],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Bucket:
    """Opens a bucket with a service account's key, whose tokens the test server issues."""
    endpoint = f"http://127.0.0.1:{server.address[1]}"
    key_file = tmp_path / "key.json"
    account = {"type": "service_account", "client_email": "me@project.iam.gserviceaccount.com", "project_id": "project"}
    key_file.write_text(json.dumps(account | {"private_key": private_key, "token_uri": f"{endpoint}/token"}))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key_file))
    monkeypatch.setenv("API_ENDPOINT_OVERRIDE", endpoint)
    return open_bucket(server.make_bucket())


def test_missing_credentials_are_missed_at_once() -> None:
    """Without credentials the bucket cannot be opened, and the error says what to do."""
    with pytest.raises(CredentialsMissingError, match=r"gs://bucket/prefix.*gcloud auth application-default login"):
        GcsBucket("bucket", "prefix")


def test_a_key_file_that_does_not_exist_is_no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A key file that is missing or invalid counts as no credentials."""
    other = tmp_path / "other.json"
    other.write_text('{"private_key": "planted-secret"}')
    for path in (tmp_path / "nothing.json", other):
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))

        with pytest.raises(CredentialsMissingError, match="GOOGLE_APPLICATION_CREDENTIALS") as raised:
            GcsBucket("bucket", "prefix")

        assert "planted-secret" not in told_of(raised.value)


def test_a_token_that_is_refused_is_renewed_and_then_given_up(bucket: Bucket, server: StrictGcs) -> None:
    """A refused token is renewed, then the call fails; the error does not contain the token."""
    server.switches.answers = [RENEWED, NO_CREDENTIALS] * 3

    with pytest.raises(CredentialsRejectedError, match="401 authError") as raised:
        bucket.stat("a")

    assert TOKEN not in told_of(raised.value)


def test_credentials_that_cannot_be_renewed_are_rejected(bucket: Bucket, server: StrictGcs) -> None:
    """If credentials cannot be renewed, the error has only OAuth's error code."""
    refused = {"error": "invalid_grant", "error_description": "Bad assertion planted-secret"}
    server.switches.answers = [in_json(refused, 400)]

    with pytest.raises(CredentialsRejectedError, match="cannot be renewed \\(invalid_grant\\)") as raised:
        bucket.put("a", b"content")

    assert "planted-secret" not in told_of(raised.value)


def test_a_token_server_that_fails_may_recover(bucket: Bucket, server: StrictGcs) -> None:
    """A failing token server is a transient error."""
    server.store.buckets.clear()
    server.switches.answers = [Answer(503)] * 50

    with pytest.raises(TransientError, match="token"):
        bucket.put("a", b"content")


def test_parts_travel_again_when_the_token_expires(bucket: Bucket, server: StrictGcs, tmp_path: Path) -> None:
    """The library asks a second time with a new one, and the body begins again."""
    file = tmp_path / "model.bin"
    file.write_bytes(os.urandom(2_000_000))
    server.switches.answers = [RENEWED, None, NO_CREDENTIALS, RENEWED]
    upload = bucket.begin("a", checksum(file))

    upload.put_part(0, file.read_bytes())
    upload.complete()

    assert bucket.stat("a").crc32c == checksum(file).crc32c
