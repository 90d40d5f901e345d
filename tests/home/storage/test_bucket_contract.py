"""What `Bucket` promises, on every store and every server of it that there is."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import google_crc32c
import pytest
from buckets.servers import BucketServer

from core_sdk._ground.records import FileEntry
from core_sdk._home.storage.bucket._bucket import (
    Bucket,
    ObjectExistsError,
    ObjectMissingError,
    PartedUpload,
)
from core_sdk.errors import BucketNotFoundError

MIB = 1 << 20
OpenBucket = Callable[[str], Bucket]

ORDER = "names in order"
WRONG_BUCKET = "reading from a bucket that is not there"
PARTS = "uploads in parts"
NOT_TESTED = {
    "fake-gcs-server": {
        WRONG_BUCKET: "it says only that nothing was found",
        PARTS: "it knows no uploads in parts",
    },
    "SeaweedFS": {ORDER: "it sorts names folder by folder, not byte by byte"},
}
"""What a server is known to get wrong, so that it says nothing of us."""

NAMES = (
    "plain",
    "with space",
    "ünï-漢字-🙂",
    "100%",
    "%41%2f",
    "a+b",
    "#hash",
    "query?x=1&y=2",
    "a&b=c",
    ".hidden",
    "..dots",
    "quote'\"",
    "deep/er/and/deeper",
)


@pytest.fixture(scope="session")
def bucket_urls() -> dict[str, str]:
    """One bucket per server for all tests, since new buckets are slow on some servers."""
    return {}


@pytest.fixture
def url(server: BucketServer, bucket_urls: dict[str, str]) -> str:
    """Returns the URL of an empty prefix."""
    if server.name not in bucket_urls:
        bucket_urls[server.name] = server.make_bucket()
    return with_prefix(bucket_urls[server.name], f"tests/{uuid.uuid4().hex[:12]}")


@pytest.fixture
def bucket(url: str, open_bucket: OpenBucket) -> Bucket:
    return open_bucket(url)


@pytest.fixture
def can(server: BucketServer) -> Callable[[str], None]:
    """Returns a function that skips the test if the server is known to fail at this."""

    def skip_unless_right(what: str) -> None:
        if reason := NOT_TESTED.get(server.name, {}).get(what):
            pytest.skip(f"NOT TESTED: {what} on {server.name}: {reason}")

    return skip_unless_right


def test_what_was_put_is_read_back(bucket: Bucket) -> None:
    """An object is read back byte for byte."""
    bucket.put("folder/file", bytes(range(256)))

    assert read(bucket, "folder/file", 0, 256) == bytes(range(256))


def test_a_put_replaces_what_was_there(bucket: Bucket) -> None:
    """A put replaces the object and gives it another version."""
    bucket.put("name", b"first")
    first = bucket.stat("name")

    bucket.put("name", b"second")

    second = bucket.stat("name")
    assert read(bucket, "name", 0, 6) == b"second"
    assert first.version != second.version


def test_an_object_tells_what_it_is(bucket: Bucket) -> None:
    """stat() and list() give an object's name, size, time and, where the store has one, its checksum."""
    bucket.put("folder/file", b"content")

    found = bucket.stat("folder/file")

    (listed,) = bucket.list()
    assert (found.name, found.size_bytes) == ("folder/file", 7)
    assert abs(found.updated - time.time()) < 60
    assert found.crc32c in (None, crc32c(b"content"))
    assert (listed.name, listed.size_bytes, listed.version) == (found.name, found.size_bytes, found.version)
    assert listed.crc32c in (None, crc32c(b"content"))


def test_an_empty_object_is_an_object(bucket: Bucket) -> None:
    """An empty object exists and is listed."""
    bucket.put("empty", b"")

    assert bucket.stat("empty").size_bytes == 0
    assert names(bucket) == ["empty"]
    with pytest.raises(ObjectMissingError):
        read(bucket, "empty", 0, 1)


def test_only_the_range_asked_for_is_read(bucket: Bucket) -> None:
    """read() returns exactly the requested range."""
    bucket.put("name", b"0123456789")

    ranges = [read(bucket, "name", start, size_bytes) for start, size_bytes in ((0, 1), (3, 4), (9, 1), (0, 10))]

    assert ranges == [b"0", b"3456", b"9", b"0123456789"]


def test_content_arrives_in_small_pieces(bucket: Bucket) -> None:
    """Content is read in pieces of at most a mebibyte."""
    content = random.Random(1).randbytes(3 * MIB + 5)
    bucket.put("name", content)
    pieces: list[bytes] = []

    bucket.read("name", 0, len(content), pieces.append)

    assert b"".join(pieces) == content
    assert all(0 < len(piece) <= MIB for piece in pieces)


def test_an_object_that_is_shorter_is_missing(bucket: Bucket) -> None:
    """A range beyond the object's end raises ObjectMissingError."""
    bucket.put("name", b"0123456789")

    for start, size_bytes in ((8, 3), (10, 1), (500, 5)):
        with pytest.raises(ObjectMissingError):
            bucket.read("name", start, size_bytes, lambda piece: None)


def test_an_object_that_is_not_there_is_missing(bucket: Bucket) -> None:
    """A missing object raises ObjectMissingError in every operation."""
    bucket.put("another", b"content")

    with pytest.raises(ObjectMissingError):
        read(bucket, "name", 0, 1)
    with pytest.raises(ObjectMissingError):
        bucket.stat("name")
    assert names(bucket) == ["another"]


def test_what_fails_in_the_sink_is_not_the_stores_failure(bucket: Bucket) -> None:
    """A full disk must not be tried again as if the network had failed; the next read is not disturbed."""
    bucket.put("name", bytes(2 * MIB))

    def refuse(piece: bytes) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        bucket.read("name", 0, 2 * MIB, refuse)
    assert read(bucket, "name", 0, 5) == bytes(5)


def test_any_name_a_file_may_have_is_kept(bucket: Bucket) -> None:
    """Any file name can be put, listed and deleted."""
    for name in NAMES:
        bucket.put(f"id/{name}", name.encode())

    for name in NAMES:
        content = name.encode()
        assert read(bucket, f"id/{name}", 0, len(content)) == content
        assert bucket.stat(f"id/{name}").size_bytes == len(content)
    assert set(names(bucket, "id/")) == {f"id/{name}" for name in NAMES}
    for name in NAMES:
        bucket.delete(f"id/{name}")
    assert names(bucket, "id/") == []


def test_a_large_object_may_have_any_name(bucket: Bucket, can: Callable[[str], None]) -> None:
    """A large object may have any name."""
    can(PARTS)
    for name in NAMES:
        send(bucket, f"large/{name}", name.encode())

    assert set(names(bucket)) == {f"large/{name}" for name in NAMES}
    assert all(read(bucket, f"large/{name}", 0, len(name.encode())) == name.encode() for name in NAMES)


def test_objects_are_listed_by_the_beginning_of_their_names(bucket: Bucket) -> None:
    """A listing has the objects whose names begin with the given text."""
    for name in ("a/1", "a/2", "ab/1", "b"):
        bucket.put(name, b"content")

    listed = {under: sorted(names(bucket, under)) for under in ("", "a", "a/", "ab/1", "c")}

    assert listed == {
        "": ["a/1", "a/2", "ab/1", "b"],
        "a": ["a/1", "a/2", "ab/1"],
        "a/": ["a/1", "a/2"],
        "ab/1": ["ab/1"],
        "c": [],
    }


def test_objects_are_listed_in_the_order_of_their_names(bucket: Bucket, can: Callable[[str], None]) -> None:
    """Objects are listed in the order of their UTF-8 names."""
    can(ORDER)
    unordered = ["b", "a/z", "a", "a-", "B", "é", "a/a/a"]
    for name in unordered:
        bucket.put(name, b"content")

    assert names(bucket) == sorted(unordered, key=str.encode)


def test_nothing_is_listed_where_nothing_is(bucket: Bucket) -> None:
    """Listing an empty prefix is no error."""
    assert names(bucket) == []


def test_what_stands_beside_the_prefix_is_never_seen(server: BucketServer, open_bucket: OpenBucket) -> None:
    """Objects outside of the prefix are neither listed nor deleted."""
    url = server.make_bucket()
    whole, narrow, beside = (open_bucket(with_prefix(url, prefix)) for prefix in ("", "a", "ab"))
    whole.put("a", b"content")
    beside.put("name", b"content")
    narrow.put("name", b"content")

    listed = names(narrow)
    narrow.delete("name")

    assert listed == ["name"]
    assert sorted(names(whole)) == ["a", "ab/name"]


def test_a_prefix_may_be_empty_or_nested(server: BucketServer, open_bucket: OpenBucket) -> None:
    """A prefix may be empty or nested, and names are relative to it."""
    url = server.make_bucket()
    whole, nested = open_bucket(with_prefix(url, "")), open_bucket(with_prefix(url, "one/two"))

    nested.put("id/name", b"content")

    assert names(whole) == ["one/two/id/name"]
    assert read(whole, "one/two/id/name", 0, 7) == b"content"
    assert nested.where("id/name").endswith("/one/two/id/name")


def test_another_bucket_of_the_same_url_holds_the_same_objects(bucket: Bucket, open_bucket: OpenBucket) -> None:
    """A bucket that is opened by the same URL has the same objects."""
    bucket.put("name", b"content")

    assert names(open_bucket(bucket.url)) == ["name"]


def test_deleting_what_is_not_there_is_nothing(bucket: Bucket) -> None:
    """Deleting a missing object is no error and leaves the others."""
    bucket.put("here", b"content")
    bucket.put("stays", b"content")

    for name in ("gone", "here", "here", "gone/too"):
        bucket.delete(name)

    assert names(bucket) == ["stays"]


def test_more_objects_than_a_page_holds_are_listed_and_deleted(server: BucketServer, bucket: Bucket) -> None:
    """Stores answer with at most 1,000 or 5,000 at a time; the slow servers get fewer."""
    num_objects = 1005 if server.name in ("fake-gcs-server", "SeaweedFS") else 40
    expected = [f"{index % 4}/{index:05d}" for index in range(num_objects)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: bucket.put(name, b"1"), expected))

        listed = names(bucket)
        list(threads.map(bucket.delete, expected))

    assert sorted(listed) == sorted(expected)
    assert names(bucket) == []


def test_an_object_can_be_made_only_if_there_is_none(bucket: Bucket, can: Callable[[str], None]) -> None:
    """With if_absent an existing object is kept, even if it is empty."""
    for content in (b"first", b""):
        name = f"name-{len(content)}"
        bucket.put(name, content, if_absent=True)

        with pytest.raises(ObjectExistsError):
            bucket.put(name, b"second", if_absent=True)

        assert bucket.stat(name).size_bytes == len(content)


def test_of_many_that_make_an_object_at_once_one_succeeds(bucket: Bucket, can: Callable[[str], None]) -> None:
    """Of several concurrent puts with if_absent exactly one succeeds."""

    def make(content: bytes) -> bytes | None:
        try:
            bucket.put("name", content, if_absent=True)
        except ObjectExistsError:
            return None
        return content

    with ThreadPoolExecutor(4) as threads:
        made = [content for content in threads.map(make, [b"1", b"2", b"3", b"4"]) if content]

    assert [read(bucket, "name", 0, 1)] == made


def test_an_object_can_be_replaced_only_if_it_is_the_expected_version(
    bucket: Bucket, can: Callable[[str], None]
) -> None:
    """With if_version only the expected version is replaced."""
    bucket.put("name", b"first")
    first = bucket.stat("name").version

    bucket.put("name", b"second", if_version=first)

    with pytest.raises(ObjectExistsError):
        bucket.put("name", b"third", if_version=first)
    with pytest.raises(ObjectExistsError):
        bucket.put("none", b"third", if_version=first)
    assert read(bucket, "name", 0, 6) == b"second"
    assert names(bucket) == ["name"]


def test_a_version_from_the_list_is_as_good_as_any(bucket: Bucket, can: Callable[[str], None]) -> None:
    """A version from a listing can be used as a precondition."""
    bucket.put("name", b"first")
    (listed,) = bucket.list()

    bucket.put("name", b"second", if_version=listed.version)

    assert read(bucket, "name", 0, 6) == b"second"


def test_a_large_object_is_read_back(bucket: Bucket, can: Callable[[str], None]) -> None:
    """A large object is read back, whatever the order of its parts."""
    can(PARTS)
    content = random.Random(2).randbytes(12 * MIB + 3)

    send(bucket, "folder/large", content)

    found = bucket.stat("folder/large")
    assert read(bucket, "folder/large", 0, len(content)) == content
    assert read(bucket, "folder/large", 6 * MIB - 1, 5) == content[6 * MIB - 1 : 6 * MIB + 4]
    assert found.size_bytes == len(content)
    assert found.crc32c in (None, crc32c(content))


def test_a_large_object_replaces_what_was_there(bucket: Bucket, can: Callable[[str], None]) -> None:
    """A large object replaces an existing one when it is complete and not before."""
    can(PARTS)
    bucket.put("name", b"first")
    upload = bucket.begin("name", entry(b"second"))
    before = read(bucket, "name", 0, 5)

    finish(upload, b"second")

    assert before == b"first"
    assert read(bucket, "name", 0, 6) == b"second"


def test_a_large_object_is_invisible_until_it_is_complete(bucket: Bucket, can: Callable[[str], None]) -> None:
    """A large object is not visible before it is complete."""
    can(PARTS)
    upload = bucket.begin("name", entry(b"content"))
    upload.put_part(0, b"content")

    assert names(bucket) == []
    with pytest.raises(ObjectMissingError):
        bucket.stat("name")
    upload.abort()


def test_a_part_and_the_completion_may_be_repeated(bucket: Bucket, can: Callable[[str], None]) -> None:
    """Parts and completions may be repeated, and the last content of a part counts."""
    can(PARTS)
    upload = bucket.begin("name", entry(b"content"))

    upload.put_part(0, b"garbage")
    upload.put_part(0, b"content")
    upload.complete()
    upload.complete()

    assert read(bucket, "name", 0, 7) == b"content"
    assert names(bucket) == ["name"]


def test_an_aborted_upload_leaves_nothing(bucket: Bucket, can: Callable[[str], None]) -> None:
    """An aborted upload leaves neither object nor parts, and may be aborted twice."""
    can(PARTS)
    upload = bucket.begin("name", entry(b"content"))
    upload.put_part(0, b"content")

    upload.abort()
    upload.abort()

    assert names(bucket) == []
    assert bucket.abort_uploads("") == 0


def test_aborting_what_is_complete_does_nothing(bucket: Bucket, can: Callable[[str], None]) -> None:
    """Aborting a completed upload keeps the object."""
    can(PARTS)
    upload = bucket.begin("name", entry(b"content"))
    finish(upload, b"content")

    upload.abort()

    assert read(bucket, "name", 0, 7) == b"content"


def test_uploads_that_were_left_behind_can_be_aborted(bucket: Bucket, can: Callable[[str], None]) -> None:
    """Unfinished uploads under a prefix can be aborted, and others stay."""
    can(PARTS)
    ours, others = bucket.begin("id/name", entry(b"content")), bucket.begin("id-2/name", entry(b"content"))
    ours.put_part(0, b"content")

    num_aborted = bucket.abort_uploads("id/")

    assert num_aborted == 1
    assert bucket.abort_uploads("id/") == 0
    with pytest.raises(Exception):  # noqa: B017  stores differ in what they say of parts that are gone
        ours.complete()
    finish(others, b"content")
    assert names(bucket) == ["id-2/name"]


def test_aborting_uploads_spares_what_is_complete(bucket: Bucket, can: Callable[[str], None]) -> None:
    """Aborting uploads does not delete completed objects."""
    can(PARTS)
    bucket.put("id/small", b"content")
    send(bucket, "id/large", b"content")

    bucket.abort_uploads("id/")

    assert sorted(names(bucket)) == ["id/large", "id/small"]


def test_a_bucket_that_is_not_there_is_told_as_such(url: str, open_bucket: OpenBucket) -> None:
    """Every write to a missing bucket raises an error with the bucket's name."""
    absent = open_bucket(of_absent_bucket(url))
    asked: Sequence[Callable[[], object]] = (
        lambda: absent.put("name", b"content"),
        lambda: absent.put("name", b"content", if_absent=True),
        lambda: names(absent),
        lambda: send(absent, "name", b"content"),
    )

    for ask in asked:
        with pytest.raises(BucketNotFoundError, match="not-there-"):
            ask()


def test_reading_from_a_bucket_that_is_not_there_is_told_as_such(
    url: str, open_bucket: OpenBucket, can: Callable[[str], None]
) -> None:
    """Reading from a missing bucket raises BucketNotFoundError and not that the object is missing."""
    can(WRONG_BUCKET)
    absent = open_bucket(of_absent_bucket(url))

    with pytest.raises(BucketNotFoundError, match="not-there-"):
        read(absent, "name", 0, 1)
    with pytest.raises(BucketNotFoundError, match="not-there-"):
        absent.stat("name")


def test_many_threads_use_a_bucket_at_once(bucket: Bucket, can: Callable[[str], None]) -> None:
    """Twenty threads can use one bucket at once."""

    def work(index: int) -> bool:
        content = bytes([index]) * 10_000
        for turn in range(3):
            bucket.put(f"{index}/{turn}", content)
        right = all(read(bucket, f"{index}/{turn}", 0, 10_000) == content for turn in range(3))
        return right and len(names(bucket, f"{index}/")) == 3

    with ThreadPoolExecutor(20) as threads:
        assert all(threads.map(work, range(20)))


def test_a_bucket_can_be_closed_twice(bucket: Bucket) -> None:
    """A bucket can be closed twice."""
    bucket.put("name", b"content")

    bucket.close()
    bucket.close()


def read(bucket: Bucket, name: str, start: int, size_bytes: int) -> bytes:
    content = bytearray()
    bucket.read(name, start, size_bytes, content.extend)
    return bytes(content)


def names(bucket: Bucket, under: str = "") -> list[str]:
    return [found.name for found in bucket.list(under)]


def crc32c(content: bytes) -> str:
    return f"{google_crc32c.value(content):08x}"


def entry(content: bytes) -> FileEntry:
    return FileEntry(size_bytes=len(content), crc32c=crc32c(content))


def send(bucket: Bucket, name: str, content: bytes) -> None:
    finish(bucket.begin(name, entry(content)), content)


def finish(upload: PartedUpload, content: bytes) -> None:
    """Sends all parts, the last one first, and completes the upload."""
    size = upload.part_bytes
    for index in reversed(range(-(-len(content) // size))):
        upload.put_part(index, content[index * size : (index + 1) * size])
    upload.complete()


def of_absent_bucket(url: str) -> str:
    name = urlsplit(url).netloc
    return url.replace(name, "not-there-" + name[-4:])


def with_prefix(url: str, prefix: str) -> str:
    return urlsplit(url)._replace(path=f"/{prefix}").geturl()
