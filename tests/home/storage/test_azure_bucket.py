"""What is Azure's own: blocks, identities, and how its refusals, and failures on the way there, are told."""

from __future__ import annotations

import contextlib
import logging
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote, urlsplit

import pytest
from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas
from buckets.azure import ACCOUNT, KEY, Azurite

from core_sdk._ground.environment import AzureSettings
from core_sdk._ground.records import FileEntry
from core_sdk._home.storage.bucket._bucket import ObjectExistsError, ObjectMissingError, PartedUpload, TransientError
from core_sdk._home.storage.bucket.azure._bucket import AzureBucket
from core_sdk.errors import (
    BucketNotFoundError,
    CredentialsMissingError,
    CredentialsRejectedError,
    StorageError,
    StoragePermissionError,
)

MIB = 1 << 20
ENTRY = FileEntry(size_bytes=5, crc32c="00000000")
SIGNATURE = "cGxhbnRlZC1zaWduYXR1cmU"
SAS = f"sv=2021-08-06&ss=b&srt=sco&sp=rwdl&sig={SIGNATURE}"
AZURES = {"x-ms-request-id": "1", "x-ms-version": "2021-08-06"}
PORTAL = b"<html><body>Welcome to our network</body></html>"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str] = field(default_factory=lambda: dict(AZURES))
    body: bytes = b""
    cut_bytes: int = 0
    """How many of the bytes that Content-Length speaks of do not come."""


def refusal(status: int, code: str, **headers: str) -> Answer:
    """Returns a refusal in Azure's form whose message quotes a secret."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>signed {SIGNATURE}</Message></Error>"
    return Answer(
        status, AZURES | {"x-ms-error-code": code, "Content-Type": "application/xml"} | headers, body.encode()
    )


@dataclass
class Scripted:
    """A server that gives the answers it was told, the last one again and again; no emulator gives them."""

    address: tuple[str, int]
    answers: list[Answer]
    requests: list[str] = field(default_factory=list)

    def open(self) -> AzureBucket:
        return AzureBucket("box", "runs", account_url=self.account_url, credential=SAS, timeout_s=5)

    @property
    def account_url(self) -> str:
        return f"http://{self.address[0]}:{self.address[1]}/{ACCOUNT}"

    def next(self, request: str) -> Answer:
        self.requests.append(request)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def scripted() -> Iterator[Callable[..., Scripted]]:
    """Starts a server that gives these answers."""
    with contextlib.ExitStack() as running:

        def start(*answers: Answer) -> Scripted:
            server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
            running.callback(server.server_close)
            script = Scripted(("127.0.0.1", server.server_port), list(answers))
            server.RequestHandlerClass = _handler(script)
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            running.callback(thread.join)
            running.callback(server.shutdown)
            return script

        yield start


def _handler(script: Scripted) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = script.next(f"{self.command} {self.path}")
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if "Content-Length" not in answer.headers:
                self.send_header("Content-Length", str(len(answer.body) + answer.cut_bytes))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


@pytest.fixture
def azurite(start_server: Callable[[str], Azurite]) -> Azurite:
    return start_server("Azurite")


@pytest.fixture
def bucket(azurite: Azurite) -> Iterator[AzureBucket]:
    """Opens a new container with the account's key."""
    opened = AzureBucket(_container(azurite), "runs", connection_string=azurite.connection_string())
    with closing(opened):
        yield opened


def _container(azurite: Azurite) -> str:
    return urlsplit(azurite.make_bucket()).netloc


def _sas(permissions: str = "rwdlc") -> str:
    return generate_account_sas(
        ACCOUNT,
        KEY,
        ResourceTypes(service=True, container=True, object=True),
        AccountSasPermissions.from_string(permissions),  # type: ignore[no-untyped-call]
        datetime.now(UTC) + timedelta(hours=1),
    )


def _read(bucket: AzureBucket, name: str, start: int, size_bytes: int) -> list[bytes]:
    pieces: list[bytes] = []
    bucket.read(name, start, size_bytes, pieces.append)
    return pieces


def _begin(bucket: AzureBucket, name: str, entry: FileEntry) -> PartedUpload:
    upload = bucket.begin(name, entry)
    assert isinstance(upload, PartedUpload)
    return upload


OPERATIONS: dict[str, Callable[[AzureBucket], object]] = {
    "put": lambda bucket: bucket.put("a", b"12345"),
    "put part": lambda bucket: _begin(bucket, "a", ENTRY).put_part(0, b"12345"),
    "complete": lambda bucket: _begin(bucket, "a", ENTRY).complete(),
    "abort": lambda bucket: _begin(bucket, "a", ENTRY).abort(),
    "read": lambda bucket: _read(bucket, "a", 0, 5),
    "stat": lambda bucket: bucket.stat("a"),
    "list": lambda bucket: list(bucket.list()),
    "delete": lambda bucket: bucket.delete("a"),
    "abort uploads": lambda bucket: bucket.abort_uploads(""),
}
each_operation = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS.keys())


@each_operation
@pytest.mark.parametrize(
    "answer",
    [Answer(200, {"Content-Type": "text/html"}, PORTAL), Answer(302, {"Location": "http://127.0.0.1:1/login"})],
    ids=["a page", "a redirect"],
)
def test_a_login_page_in_azures_place_may_pass(
    scripted: Callable[..., Scripted], operation: Callable[[AzureBucket], object], answer: Answer
) -> None:
    """A login page in the place of Azure's answer is a transient error and is not followed."""
    script = scripted(answer)

    with closing(script.open()) as bucket, pytest.raises(TransientError, match="is not Azure's"):
        operation(bucket)

    assert len(script.requests) == 1


@each_operation
def test_a_busy_service_is_asked_once_and_its_pause_is_told(
    scripted: Callable[..., Scripted], operation: Callable[[AzureBucket], object]
) -> None:
    """A busy service is asked once, and the error has its Retry-After; the caller retries."""
    script = scripted(refusal(503, "ServerBusy", **{"Retry-After": "7"}))

    with closing(script.open()) as bucket, pytest.raises(TransientError, match="ServerBusy") as raised:
        operation(bucket)

    assert raised.value.retry_after_s == 7.0
    assert len(script.requests) == 1


@each_operation
@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (refusal(403, "AuthenticationFailed"), CredentialsRejectedError, "SAS may have expired"),
        (refusal(401, "NoAuthenticationInformation"), CredentialsRejectedError, "AZURE_STORAGE_SAS_TOKEN"),
        (refusal(403, "KeyBasedAuthenticationNotPermitted"), CredentialsRejectedError, "az login"),
        (refusal(403, "AuthorizationPermissionMismatch"), StoragePermissionError, "containers/blobs/"),
        (refusal(404, "ContainerNotFound"), BucketNotFoundError, "az storage container create"),
        (refusal(400, "InvalidHeaderValue"), StorageError, "InvalidHeaderValue"),
    ],
    ids=lambda value: None,
)
def test_each_refusal_is_an_error_of_its_own_class(
    scripted: Callable[..., Scripted],
    operation: Callable[[AzureBucket], object],
    answer: Answer,
    kind: type[StorageError],
    words: str,
) -> None:
    """Each kind of refusal has its own error with advice and without Azure's text, which may quote secrets."""
    script = scripted(answer)

    with closing(script.open()) as bucket, pytest.raises(kind, match=words) as raised:
        operation(bucket)

    assert "azure://box/runs" in str(raised.value)
    assert SIGNATURE not in "".join(traceback.format_exception(raised.value))


@each_operation
def test_a_server_that_is_not_there_may_come_back(
    scripted: Callable[..., Scripted], operation: Callable[[AzureBucket], object]
) -> None:
    """The reason is the system's; the signed address of the request is in no text."""
    bucket = AzureBucket("box", "runs", account_url=f"http://127.0.0.1:1/{ACCOUNT}", credential=SAS)

    with closing(bucket), pytest.raises(TransientError, match="Connection refused") as raised:
        operation(bucket)

    assert SIGNATURE not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize(
    ("header", "value", "wait_s"), [("x-ms-retry-after-ms", "1500", 1.5), ("Retry-After", "soon", None)]
)
def test_a_pause_is_read_in_the_unit_of_its_header(
    scripted: Callable[..., Scripted], header: str, value: str, wait_s: float | None
) -> None:
    """Retry-After is read in the unit of its header, and an invalid one is ignored."""
    script = scripted(refusal(429, "TooManyRequests", **{header: value}))

    with closing(script.open()) as bucket, pytest.raises(TransientError) as raised:
        bucket.stat("a")

    assert raised.value.retry_after_s == wait_s


def test_an_answer_that_breaks_off_hands_on_what_came_and_may_pass(scripted: Callable[..., Scripted]) -> None:
    """An answer that breaks off is a transient error, and the bytes that came are handed on."""
    script = scripted(Answer(206, AZURES | {"Content-Range": "bytes 0-9/10"}, b"12345", cut_bytes=5))
    pieces: list[bytes] = []

    with closing(script.open()) as bucket, pytest.raises(TransientError):
        bucket.read("a", 0, 10, pieces.append)

    assert b"".join(pieces) in (b"", b"12345")
    assert len(script.requests) == 1


@pytest.mark.parametrize(
    ("status", "extent", "kind"),
    [
        (206, "bytes 5-9/10", TransientError),
        (200, "bytes 0-4/5", TransientError),
        (206, "bytes 0-3/4", ObjectMissingError),
    ],
)
def test_only_the_range_that_was_asked_for_is_handed_on(
    scripted: Callable[..., Scripted], status: int, extent: str, kind: type[Exception]
) -> None:
    """A range other than the requested one is refused and not handed on."""
    script = scripted(Answer(status, AZURES | {"Content-Range": extent}, b"12345"))
    pieces: list[bytes] = []

    with closing(script.open()) as bucket, pytest.raises(kind):
        bucket.read("a", 0, 5, pieces.append)

    assert pieces == []


def test_blocks_of_an_unfinished_upload_are_seen_by_nobody_and_swept(azurite: Azurite, bucket: AzureBucket) -> None:
    """Blocks of an unfinished upload are not listed and are removed by abort_uploads()."""
    bucket.put("save/empty", b"")
    bucket.put("save/whole", b"whole")
    for name in ("save/lost", "save/whole", "other/lost"):
        _begin(bucket, name, ENTRY).put_part(0, b"12345")
    before = [(found.name, found.version) for found in bucket.list()]

    num_swept = bucket.abort_uploads("save/")

    assert num_swept == 1
    assert [name for name, _ in before] == ["save/empty", "save/whole"]
    assert [(found.name, found.version) for found in bucket.list()] == before
    assert _names_with_blocks(azurite, bucket) == ["other/lost", "save/empty", "save/whole"]


def _names_with_blocks(azurite: Azurite, bucket: AzureBucket) -> list[str]:
    parts = urlsplit(bucket.url)
    with azurite.client() as client:
        found = client.get_container_client(parts.netloc).list_blobs(include=["uncommittedblobs"])
        return [item.name.removeprefix("runs/") for item in found]


def test_an_aborted_upload_leaves_nothing(azurite: Azurite, bucket: AzureBucket) -> None:
    """An aborted upload leaves no blocks."""
    upload = _begin(bucket, "save/a", ENTRY)
    upload.put_part(0, b"12345")

    upload.abort()
    upload.abort()

    assert _names_with_blocks(azurite, bucket) == []


def test_an_abort_after_the_upload_is_complete_does_nothing(bucket: AzureBucket) -> None:
    """abort() after complete(), and a second complete(), do nothing."""
    upload = _begin(bucket, "save/a", ENTRY)
    upload.put_part(0, b"12345")

    upload.complete()
    upload.complete()
    upload.abort()

    assert _read(bucket, "save/a", 0, 5) == [b"12345"]


def test_a_range_comes_in_small_pieces(bucket: AzureBucket) -> None:
    """A range of any size is read in small pieces, so that memory is bounded."""
    content = bytes(range(256)) * (5 * MIB // 256)
    bucket.put("large", content)

    pieces = _read(bucket, "large", 3, 5 * MIB - 5)

    assert b"".join(pieces) == content[3:-2]
    assert max(map(len, pieces)) <= MIB


def test_a_sas_is_enough_for_everything_and_is_never_shown(azurite: Azurite, caplog: pytest.LogCaptureFixture) -> None:
    """A SAS is enough for all operations and appears in no log, repr or URL."""
    sas = _sas()
    signature = sas.partition("sig=")[2].partition("&")[0]
    caplog.set_level(logging.DEBUG)
    bucket = AzureBucket(_container(azurite), "runs", account_url=azurite.account_url(), credential=f"?{sas}")

    with closing(bucket):
        upload = _begin(bucket, "a/parts", ENTRY)
        upload.put_part(0, b"12345")
        upload.complete()
        read = _read(bucket, "a/parts", 0, 5)
        listed = [found.name for found in bucket.list()]
        bucket.delete("a/parts")
        with pytest.raises(ObjectMissingError):
            bucket.stat("a/parts")

    assert (read, listed) == ([b"12345"], ["a/parts"])
    shown = caplog.text + repr(bucket) + bucket.url + str([record.args for record in caplog.records])
    assert "azure" in shown and "connectionpool" in shown
    assert signature not in shown


def test_a_sas_without_the_permission_is_told_which_it_takes(azurite: Azurite) -> None:
    """A missing permission is named by the SAS letter and the role's action."""
    bucket = AzureBucket(_container(azurite), "", account_url=azurite.account_url(), credential=_sas("rl"))

    with closing(bucket), pytest.raises(StoragePermissionError, match=r"blobs/write .* permission 'w'"):
        bucket.put("a", b"")


def test_a_key_is_never_shown(azurite: Azurite, caplog: pytest.LogCaptureFixture) -> None:
    """The account's key appears in no log, repr, URL or error."""
    caplog.set_level(logging.DEBUG)
    bucket = AzureBucket(_container(azurite), "", connection_string=azurite.connection_string())

    with closing(bucket), pytest.raises(ObjectExistsError) as raised:
        bucket.put("a", b"")
        bucket.put("a", b"", if_absent=True)

    assert KEY not in caplog.text + repr(bucket) + bucket.url + "".join(traceback.format_exception(raised.value))


def test_the_url_names_the_account_without_what_opens_it(azurite: Azurite) -> None:
    """The bucket's URL has the account's address and no secret."""
    sas_string = f"BlobEndpoint={azurite.account_url()};SharedAccessSignature={SAS}"

    with closing(AzureBucket("box", "/runs/", connection_string=sas_string)) as bucket:
        assert bucket.url == f"azure://box/runs?account_url={quote(azurite.account_url(), safe='')}"


def test_the_environment_names_the_account(monkeypatch: pytest.MonkeyPatch, azurite: Azurite) -> None:
    """The account can come from a connection string or from its name and key in the environment."""
    container = _container(azurite)
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azurite.connection_string())
    with closing(AzureBucket(container, "")) as bucket:
        bucket.put("a", b"1")
        url = bucket.url
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)

    with closing(AzureBucket(container, "", account_url=azurite.account_url())) as bucket:
        assert bucket.url == url
        assert bucket.stat("a").size_bytes == 1
    with closing(AzureBucket(container, "")) as bucket:
        assert bucket.url == f"azure://{container}?account_url=https%3A%2F%2F{ACCOUNT}.blob.core.windows.net"


def test_a_sas_is_not_handed_to_another_account(
    monkeypatch: pytest.MonkeyPatch, scripted: Callable[..., Scripted]
) -> None:
    """A SAS in the environment is not sent to another account's address."""
    script = scripted(refusal(401, "NoAuthenticationInformation"))
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "mine")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", SAS)

    with pytest.raises(CredentialsMissingError, match="https"):
        AzureBucket("box", "", account_url=script.account_url)

    assert script.requests == []


def test_without_any_account_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an account, the error names the variables and the login command."""
    for name in ("CONNECTION_STRING", "ACCOUNT", "KEY", "SAS_TOKEN"):
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)

    with pytest.raises(CredentialsMissingError, match=r"azure://box/runs.*AZURE_STORAGE_CONNECTION_STRING.*az login"):
        AzureBucket("box", "runs")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"credential": SAS}, "credential without account_url"),
        ({"connection_string": "a=b", "account_url": "https://a.b"}, "one or the other"),
        ({"connection_string": "a=b", "credential": SAS}, "one or the other"),
        ({"account_url": f"https://a.b?{SAS}"}, "holds credentials"),
        ({"account_url": f"https://user:{SIGNATURE}@a.b"}, "holds credentials"),
        ({"account_url": "a.b"}, "must be like"),
    ],
)
def test_contradictory_arguments_are_refused(arguments: dict[str, str], words: str) -> None:
    """Contradictory arguments are refused without repeating a secret."""
    with pytest.raises(ValueError, match=words) as raised:
        AzureBucket("box", "", **arguments)  # type: ignore[arg-type]

    assert SIGNATURE not in str(raised.value)


def test_a_malformed_connection_string_is_not_repeated() -> None:
    """A malformed connection string is refused without repeating it."""
    with pytest.raises(CredentialsRejectedError, match="malformed") as raised:
        AzureBucket("box", "", connection_string=f"AccountKey={SIGNATURE}")

    assert SIGNATURE not in "".join(traceback.format_exception(raised.value))


def test_settings_do_not_show_their_secrets() -> None:
    """The repr of the settings has no secrets."""
    settings = AzureSettings.read({f"AZURE_STORAGE_{name}": KEY for name in ("CONNECTION_STRING", "KEY", "SAS_TOKEN")})

    assert settings.key == KEY
    assert KEY not in repr(settings)
