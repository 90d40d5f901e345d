"""What servers, proxies and libraries say reaches a person without the credentials that it quotes."""

from __future__ import annotations

import base64
import json
import logging
import time
import traceback
from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest
from buckets.strict_gcs import StrictGcs, start_strict_gcs
from buckets.strict_gcs._answers import Answer, json_error, xml_error
from google.auth.credentials import AnonymousCredentials
from promises import promise

from core_sdk._home.storage.bucket._bucket import Bucket
from core_sdk._home.storage.bucket._secrets import hide_in_logs, redacted, secrets_of, word

TOKEN = "ya29.a0AfB_byplanted-token"
SESSION = "https://storage.googleapis.com/upload/storage/v1/b/b/o?uploadType=resumable&upload_id=planted-upload"
PLANTED = "planted"
ECHOES = {
    "bare": TOKEN,
    "header": f"Authorization: Bearer {TOKEN}",
    "quoted": quote(f"Bearer {TOKEN}", safe=""),
    "base64": base64.b64encode(TOKEN.encode()).decode(),
    "session": SESSION,
}
BODIES: dict[str, Callable[[int, str], Answer]] = {
    "JSON message": lambda status, text: json_error(status, "invalid", f"Bad request: {text} is not valid"),
    "JSON reason": lambda status, text: json_error(status, text, "Bad request"),
    "XML message": lambda status, text: xml_error(status, "InvalidArgument", text.replace("&", "&amp;")),
    "XML code": lambda status, text: xml_error(status, text.replace("&", "&amp;"), "Bad request"),
    "text": lambda status, text: Answer(status, {"Content-Type": "text/plain"}, f"Refused: {text}".encode()),
    "other JSON": lambda status, text: Answer(
        status, {"Content-Type": "application/json"}, json.dumps({"error": text, "request": {"x": text}}).encode()
    ),
}


@pytest.fixture
def server() -> Iterator[StrictGcs]:
    with start_strict_gcs() as server:
        yield server


@pytest.fixture
def bucket(server: StrictGcs, open_bucket: Callable[[str], Bucket], monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """Opens a bucket with a token that tests can search for."""

    def sign(self: AnonymousCredentials, request: object, method: str, url: str, headers: dict[str, str]) -> None:
        headers["authorization"] = f"Bearer {TOKEN}"

    monkeypatch.setattr(AnonymousCredentials, "before_request", sign)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{server.address[1]}")
    return open_bucket(server.make_bucket())


@promise("credentials-hidden")
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("echo", ECHOES)
def test_no_credential_that_a_store_quotes_is_told(
    bucket: Bucket, server: StrictGcs, caplog: pytest.LogCaptureFixture, body: str, echo: str
) -> None:
    """No credential that a store quotes in its answer appears in an error or a log."""
    caplog.set_level(logging.DEBUG)
    told = []
    for status in (400, 401, 403, 404, 409, 429, 503):
        for call in (lambda: bucket.put("a", b"content"), lambda: list(bucket.list()), lambda: bucket.stat("a")):
            server.switches.answers = [BODIES[body](status, ECHOES[echo])] * 3
            error = error_of(call)
            told += [*traceback.format_exception(error), repr(error), str(getattr(error, "reason", ""))]

    text = "".join(told) + caplog.text
    assert "503" in text
    assert PLANTED not in text
    assert base64.b64encode(TOKEN.encode()).decode() not in text


def error_of(call: Callable[[], object]) -> Exception:
    try:
        call()
    except Exception as error:  # noqa: BLE001
        return error
    raise AssertionError("it did not fail")


def test_the_address_of_an_upload_session_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """The address of an upload session is hidden in the logs of libraries."""
    caplog.set_level(logging.DEBUG)
    hide_in_logs("urllib3.connectionpool")

    logging.getLogger("urllib3.connectionpool").debug('%s "%s %s"', "https://host:443", "PUT", SESSION)

    assert PLANTED not in caplog.text
    assert "https://host:443" in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        "http://me:planted@host:3128/ cannot be reached",
        "GET /container/blob?sv=2021&sig=planted%3D HTTP/1.1",
        "Authorization: Bearer planted",
        "Proxy-Authorization: Basic planted",
        "Authorization: AWS4-HMAC-SHA256 Credential=AKIA/20260101, SignedHeaders=host, Signature=planted",
        "x-amz-security-token:planted",
        '{"access_token": "planted", "expires_in": 3600}',
        "AccountName=a;AccountKey=planted;EndpointSuffix=core.windows.net",
        "<SecretAccessKey>planted</SecretAccessKey>",
        "password = planted",
        "the header is b'x-amz-s3session-token': b'planted'",
        "Signature:\nplanted",
        "it was ya29.planted",
        "key planted1QxE4bX9wq2Lk7Vt5",
    ],
)
def test_what_looks_like_a_credential_is_left_out(text: str) -> None:
    """Texts that look like credentials are removed from messages."""
    assert PLANTED not in redacted(text)


@pytest.mark.parametrize(
    "text",
    [
        "Invalid Credentials",
        "The specified bucket does not exist.",
        "me@project.iam.gserviceaccount.com does not have storage.objects.get access to the object.",
        "Object 'b/o' is subject to bucket's retention policy and cannot be deleted until 2026-01-01",
        "The billing account for the owning project is disabled in state absent",
        "Name or service not known",
    ],
)
def test_what_helps_is_told(text: str) -> None:
    """A message without credentials is unchanged."""
    assert redacted(text) == text


def test_a_password_that_a_proxy_was_sent_is_known_by_its_header() -> None:
    """A password that was sent to a proxy is removed in any form."""
    sent = secrets_of({"Proxy-Authorization": "Basic " + base64.b64encode(b"me:letmein").decode()})

    assert redacted("407: me with letmein was refused", sent) == "407: me with … was refused"


@pytest.mark.parametrize("code", ["NoSuchUpload", "XAmzContentSHA256Mismatch", "404", "rateLimitExceeded"])
def test_a_stores_word_is_told(code: str) -> None:
    """A store's error code is part of the message."""
    assert word(code) == code


@pytest.mark.parametrize("code", [TOKEN, "a b", "", "wJalrXUtnFEMI7K7MDENG1bPxRfiCY", "0123456789abcdef"])
def test_what_is_no_stores_word_is_not_told(code: str) -> None:
    """An error code that could be a secret is left out."""
    assert word(code) == ""


def test_redaction_is_quick() -> None:
    """Redaction is fast for any text, also for one that is made to be slow."""
    began = time.monotonic()

    for text in ("=" * 65_536, "a1" * 32_768, "key=" * 16_384, "//" * 32_768, "token " * 10_000, "-" * 65_536):
        redacted(text)

    assert time.monotonic() - began < 5
