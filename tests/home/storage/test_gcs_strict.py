"""`GcsBucket` against a fake of the tests' own, which answers as Google's documentation says where no emulator does."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from buckets import faults
from buckets.proxy import start_proxy
from buckets.strict_gcs import StrictGcs, start_strict_gcs
from buckets.strict_gcs._answers import (
    NO_CREDENTIALS,
    Answer,
    json_error,
    not_permitted,
    page,
)
from stage import told_of

from core_sdk._ground.records import FileEntry
from core_sdk._home.storage._checksum import checksum
from core_sdk._home.storage.bucket._bucket import (
    Bucket,
    ObjectExistsError,
    ObjectMissingError,
    PartedUpload,
    TransientError,
)
from core_sdk._home.storage.bucket.gcs._bucket import GcsBucket
from core_sdk.errors import BucketNotFoundError, CredentialsMissingError, StorageError, StoragePermissionError

_MIB = 1 << 20


@pytest.fixture
def server() -> Iterator[StrictGcs]:
    with start_strict_gcs() as server:
        yield server


@pytest.fixture
def bucket(server: StrictGcs, open_bucket: Callable[[str], Bucket], monkeypatch: pytest.MonkeyPatch) -> Bucket:
    for name, value in server.variables().items():
        monkeypatch.setenv(name, value)
    return open_bucket(server.make_bucket())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that is sent in three parts."""
    path = tmp_path / "model.bin"
    path.write_bytes(os.urandom(2 * 16 * _MIB + 1000))
    return path


@pytest.fixture
def small_file(tmp_path: Path) -> Path:
    path = tmp_path / "small.bin"
    path.write_bytes(os.urandom(2_000_000))
    return path


def send_parts(upload: PartedUpload, file: Path) -> None:
    content = file.read_bytes()
    starts = range(0, len(content), upload.part_bytes)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda start: put_part(upload, content, start), starts))


def put_part(upload: PartedUpload, content: bytes, start: int) -> None:
    upload.put_part(start // upload.part_bytes, content[start : start + upload.part_bytes])


def content_of(bucket: Bucket, name: str) -> bytes:
    pieces: list[bytes] = []
    bucket.read(name, 0, bucket.stat(name).size_bytes, pieces.append)
    assert all(len(piece) <= _MIB for piece in pieces)
    return b"".join(pieces)


def names_in(bucket: Bucket, under: str = "") -> list[str]:
    return [stored.name for stored in bucket.list(under)]


def test_parts_travel_in_any_order_and_become_one_object(bucket: Bucket, file: Path) -> None:
    """Parts may be sent in any order and are visible only after completion."""
    upload = bucket.begin("a/model.bin", checksum(file))

    send_parts(upload, file)
    before = names_in(bucket)
    upload.complete()
    upload.complete()
    upload.abort()

    assert before == []
    assert content_of(bucket, "a/model.bin") == file.read_bytes()


def test_a_completion_whose_answer_was_lost_is_done_when_repeated(
    bucket: Bucket, server: StrictGcs, file: Path
) -> None:
    """A completion whose answer was lost can be repeated."""
    upload = bucket.begin("a/model.bin", checksum(file))
    send_parts(upload, file)
    server.switches.lose_answers_to = "POST"

    with pytest.raises(TransientError):
        upload.complete()
    upload.complete()

    assert bucket.stat("a/model.bin").crc32c == checksum(file).crc32c


def test_parts_that_somebody_removed_are_an_error(bucket: Bucket, file: Path) -> None:
    """If the parts were removed, the upload raises ObjectMissingError."""
    upload = bucket.begin("a/model.bin", checksum(file))
    send_parts(upload, file)
    bucket.abort_uploads("")

    with pytest.raises(ObjectMissingError):
        upload.complete()
    with pytest.raises(ObjectMissingError):
        upload.put_part(0, b"content")


def test_a_session_that_is_gone_is_told_from_a_failure_that_passes(
    bucket: Bucket, server: StrictGcs, small_file: Path
) -> None:
    """An answer of 410 is final, and 429 is transient with a pause."""
    upload = bucket.begin("a", checksum(small_file))

    server.switches.answers = [Answer(429, {"Retry-After": "2"})]
    with pytest.raises(TransientError) as busy:
        upload.put_part(0, small_file.read_bytes())
    server.switches.answers = [Answer(410)]
    with pytest.raises(ObjectMissingError):
        upload.put_part(0, small_file.read_bytes())

    assert busy.value.retry_after_s == 2.0


def test_a_part_that_was_damaged_is_noticed(bucket: Bucket, server: StrictGcs, small_file: Path) -> None:
    """A part is refused if the checksum in the answer is wrong or missing."""
    upload = bucket.begin("a", checksum(small_file))
    for headers in ({"x-goog-hash": "crc32c=AAAAAA==,md5=1B2M2Y8AsgTpgAmY7PhCfg=="}, {}):
        server.switches.answers = [Answer(200, {"ETag": '"1"'} | headers)]

        with pytest.raises(TransientError):
            upload.put_part(0, small_file.read_bytes())


def test_parts_of_another_content_leave_no_object(bucket: Bucket, file: Path) -> None:
    """Parts that form another content than announced leave no object."""
    entry = checksum(file)
    upload = bucket.begin("a/model.bin", FileEntry(size_bytes=entry.size_bytes, crc32c="01234567"))
    send_parts(upload, file)

    with pytest.raises(TransientError, match="other bytes"):
        upload.complete()

    assert names_in(bucket) == []


def test_aborted_parts_are_gone(bucket: Bucket, server: StrictGcs, small_file: Path) -> None:
    """abort() removes the parts, and may be called twice."""
    upload = bucket.begin("a", checksum(small_file))
    send_parts(upload, small_file)

    upload.abort()
    upload.abort()

    assert server.store.uploads == {}


def test_uploads_that_were_left_are_removed_page_by_page(bucket: Bucket, server: StrictGcs) -> None:
    """abort_uploads() removes all unfinished uploads under the prefix, over several pages."""
    server.switches.page_size = 2
    entry = FileEntry(size_bytes=1, crc32c="00000000")
    for name in ("a/1", "a/2", "a/2", "a/2", "a/ü?&", "b/1"):
        bucket.begin(name, entry)

    assert bucket.abort_uploads("a/") == 5
    assert bucket.abort_uploads("a/") == 0
    assert bucket.abort_uploads("") == 1


def test_only_one_of_two_creates_an_object(bucket: Bucket) -> None:
    """Of two puts with if_absent the second raises ObjectExistsError."""
    bucket.put("a", b"first", if_absent=True)

    with pytest.raises(ObjectExistsError):
        bucket.put("a", b"second", if_absent=True)

    assert content_of(bucket, "a") == b"first"


def test_an_object_is_replaced_only_in_the_version_that_was_seen(bucket: Bucket) -> None:
    """An object is replaced only if it still has the expected version."""
    bucket.put("a", b"first")
    seen = bucket.stat("a").version
    bucket.put("a", b"second", if_version=seen)

    with pytest.raises(ObjectExistsError):
        bucket.put("a", b"third", if_version=seen)

    assert content_of(bucket, "a") == b"second"


def test_what_a_store_damages_is_noticed(bucket: Bucket, server: StrictGcs) -> None:
    """Damage by the store itself is noticed, and the put can be repeated."""
    server.switches.damage_next = True

    with pytest.raises(TransientError, match="other bytes"):
        bucket.put("a", b"content", if_absent=True)
    bucket.put("a", b"content", if_absent=True)

    assert content_of(bucket, "a") == b"content"


def test_a_range_is_read(bucket: Bucket) -> None:
    """read() returns exactly the range, and a range beyond the end is missing."""
    bucket.put("a", b"0123456789")
    pieces: list[bytes] = []

    bucket.read("a", 3, 4, pieces.append)

    assert b"".join(pieces) == b"3456"
    for name, start, size_bytes in [("a", 5, 6), ("a", 10, 1), ("never", 0, 1)]:
        with pytest.raises(ObjectMissingError):
            bucket.read(name, start, size_bytes, pieces.append)


def test_an_answer_that_is_not_the_range_is_not_taken(bucket: Bucket, server: StrictGcs) -> None:
    """An answer with another range is a transient error, and its bytes are dropped."""
    bucket.put("a", b"0123456789")
    for headers in ({}, {"Content-Range": "bytes 0-3/10"}, {"Content-Range": "nonsense"}):
        server.switches.answers = [Answer(206 if headers else 200, headers, b"0123")]

        with pytest.raises(TransientError, match="not the range"):
            bucket.read("a", 3, 4, lambda _: pytest.fail("bytes were taken"))


def test_lists_come_in_pages_and_in_order(bucket: Bucket, server: StrictGcs) -> None:
    """Listings over several pages are complete and in order."""
    names = ["a/1", "a/2", "b", "c/d/1", "c/e", "d/1", "ü"]
    for name in reversed(names):
        bucket.put(name, name.encode())
    server.switches.page_size = 2

    assert names_in(bucket) == names
    assert names_in(bucket, "c/") == ["c/d/1", "c/e"]
    assert [stored.size_bytes for stored in bucket.list("b")] == [1]


def test_folders_that_a_console_made_are_no_objects(bucket: Bucket) -> None:
    """Folder objects that a console creates are not listed."""
    whole = GcsBucket(bucket.url.split("/")[2], "")
    for name in ("checkpoints/", "checkpoints//a"):
        whole.put(name, b"")
    whole.close()

    assert names_in(bucket) == ["/a"]


def test_an_empty_prefix_is_the_whole_bucket(bucket: Bucket) -> None:
    """An empty prefix gives access to the whole bucket."""
    whole = GcsBucket(bucket.url.split("/")[2], "")
    bucket.put("a", b"content")

    assert names_in(whole) == ["checkpoints/a"]
    whole.close()


def _calls(bucket: Bucket) -> dict[str, Callable[[], object]]:
    entry = FileEntry(size_bytes=1, crc32c="00000000")
    return {
        "put": lambda: bucket.put("a", b"content"),
        "begin": lambda: bucket.begin("a", entry),
        "read": lambda: bucket.read("a", 0, 1, lambda _: None),
        "stat": lambda: bucket.stat("a"),
        "list": lambda: list(bucket.list()),
        "delete": lambda: bucket.delete("a"),
        "abort_uploads": lambda: bucket.abort_uploads(""),
    }


CALLS = sorted(_calls(None))  # type: ignore[arg-type]


@pytest.mark.parametrize("call", CALLS)
def test_a_bucket_that_does_not_exist_is_named(server: StrictGcs, bucket: Bucket, call: str) -> None:
    """A missing bucket is named by every call."""
    server.store.buckets.clear()

    with pytest.raises(BucketNotFoundError, match=re.escape(bucket.url)):
        _calls(bucket)[call]()


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("answer", "reason", "retry_after_s"),
    [
        (json_error(503, "backendError", "We encountered an internal error."), "503 backendError", None),
        (json_error(429, "rateLimitExceeded", "Too many requests", **{"Retry-After": "7"}), "429", 7.0),
        (json_error(403, "userRateLimitExceeded", "Slow down"), "403 userRateLimitExceeded", None),
        (Answer(408), "408", None),
        (page(403), "login page", None),
        (page(404), "login page", None),
        (Answer(302, {"Location": "http://127.0.0.1:1/login?token=planted-secret"}), "login page", None),
    ],
    ids=["503", "429", "rate as 403", "408", "page as 403", "page as 404", "redirect"],
)
def test_what_may_pass_by_itself_is_said_to(
    server: StrictGcs, bucket: Bucket, call: str, answer: Answer, reason: str, retry_after_s: float | None
) -> None:
    """Temporary failures raise TransientError in every call, with the reason and any pause."""
    server.switches.answers = [answer]

    with pytest.raises(TransientError, match=reason) as raised:
        _calls(bucket)[call]()

    assert raised.value.retry_after_s == retry_after_s
    assert "planted-secret" not in told_of(raised.value)


@pytest.mark.parametrize("call", CALLS)
def test_a_login_page_is_no_answer(server: StrictGcs, bucket: Bucket, call: str) -> None:
    """A login page with status 200 is a transient error."""
    server.switches.answers = [page()]

    with pytest.raises(TransientError, match="login page"):
        _calls(bucket)[call]()


def test_a_date_says_when_to_come_back(server: StrictGcs, bucket: Bucket) -> None:
    """Retry-After may be a date."""
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    server.switches.answers = [Answer(503, {"Retry-After": date})]

    with pytest.raises(TransientError) as raised:
        bucket.stat("a")

    assert raised.value.retry_after_s == pytest.approx(100, abs=20)


@pytest.mark.parametrize(
    ("call", "permission"),
    [
        ("put", "storage.objects.create"),
        ("begin", "storage.multipartUploads.create"),
        ("read", "storage.objects.get"),
        ("stat", "storage.objects.get"),
        ("list", "storage.objects.list"),
        ("delete", "storage.objects.delete"),
        ("abort_uploads", "storage.multipartUploads.list"),
    ],
)
def test_a_missing_permission_is_named(server: StrictGcs, bucket: Bucket, call: str, permission: str) -> None:
    """A missing permission is named as Google names it, with the object."""
    server.switches.answers = [json_error(403, "forbidden", "Access denied."), not_permitted("storage.objects.update")]

    with pytest.raises(StoragePermissionError, match=re.escape(bucket.url)) as raised:
        _calls(bucket)[call]()
    with pytest.raises(StoragePermissionError, match=r"storage\.objects\.update"):
        _calls(bucket)[call]()

    assert raised.value.permission == permission


@pytest.mark.parametrize("call", CALLS)
def test_a_store_that_wants_credentials_is_understood(server: StrictGcs, bucket: Bucket, call: str) -> None:
    """A store that refuses access without credentials raises CredentialsMissingError."""
    server.switches.answers = [NO_CREDENTIALS] * 3

    with pytest.raises(CredentialsMissingError, match="gcloud auth application-default login"):
        _calls(bucket)[call]()


def test_a_refusal_of_another_kind_says_what_the_store_said(server: StrictGcs, bucket: Bucket) -> None:
    """Another refusal has the store's message without the query of URLs."""
    server.switches.answers = [json_error(400, "invalid", "Bad request /o?upload_id=planted-secret")]

    with pytest.raises(StorageError, match=r"a/b.*400 invalid \(Bad request /o\?…\)") as raised:
        bucket.put("a/b", b"content")

    assert "planted-secret" not in told_of(raised.value)


def test_a_store_that_answers_the_xml_api_in_json_is_refused(
    server: StrictGcs, open_bucket: Callable[[str], Bucket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that answers the XML API in JSON is refused as unsupported."""
    with start_proxy(server.address) as proxy:
        for name, value in server.variables(proxy.address).items():
            monkeypatch.setenv(name, value)
        bucket = open_bucket(server.make_bucket())
        in_json = faults.answer("200 OK", {"Content-Type": "application/json"}, b'{"kind": "storage#objects"}')
        proxy.fault(lambda request: "uploads" in request.query, in_json)

        with pytest.raises(StorageError, match="XML API in JSON"):
            bucket.abort_uploads("")
        with pytest.raises(StorageError, match="XML API in JSON"):
            bucket.begin("large", FileEntry(size_bytes=20 << 20, crc32c="00000000"))
