"""What is S3's own: its refusals, its servers that lack this or that, its checksums, its parts."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator

import google_crc32c
import pytest
from buckets.faults import captive_portal, drop_answer, lose_answer, redirect_to_portal, status, truncate_answer
from buckets.proxy import Exchange, Fault, Proxy, Request, start_proxy
from buckets.servers import BucketServer

from core_sdk._ground.records import FileEntry
from core_sdk._home.storage.bucket._bucket import ObjectExistsError, ObjectMissingError, TransientError
from core_sdk._home.storage.bucket.s3._bucket import S3Bucket
from core_sdk._home.storage.bucket.s3._upload import S3PartedUpload, etag_of_parts
from core_sdk.errors import (
    BucketNotFoundError,
    CredentialsMissingError,
    CredentialsRejectedError,
    StorageError,
    StoragePermissionError,
)

MIB = 1 << 20
ACCESS_KEY = "PLANTEDACCESSKEY"
SECRET_KEY = "planted-secret-key"
OpenS3 = Callable[..., S3Bucket]


@pytest.fixture
def environment(start_server: Callable[[str], BucketServer], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Returns a function that sets the environment for a server of this name."""

    def use(name: str) -> None:
        for variable, value in start_server(name).variables().items():
            monkeypatch.setenv(variable, value)

    return use


@pytest.fixture
def moto(start_server: Callable[[str], BucketServer], environment: Callable[[str], None]) -> BucketServer:
    environment("moto")
    return start_server("moto")


@pytest.fixture
def seaweedfs(start_server: Callable[[str], BucketServer], environment: Callable[[str], None]) -> BucketServer:
    environment("SeaweedFS")
    return start_server("SeaweedFS")


@pytest.fixture
def open_s3() -> Iterator[OpenS3]:
    """Opens a fresh bucket of a server, perhaps through a proxy; it is closed at the end of the test."""
    opened: list[S3Bucket] = []

    def open_fresh(server: BucketServer, proxy: Proxy | None = None, **arguments: object) -> S3Bucket:
        name = server.make_bucket().split("/")[2]
        host, port = proxy.address if proxy else server.address
        settings = {"endpoint_url": f"http://{host}:{port}", "part_bytes": 5 * MIB} | arguments
        opened.append(S3Bucket(name, "checkpoints", **settings))  # type: ignore[arg-type]
        return opened[-1]

    yield open_fresh
    for bucket in opened:
        bucket.close()


@pytest.fixture
def proxy(moto: BucketServer) -> Iterator[Proxy]:
    """Starts a proxy in front of moto."""
    with start_proxy(moto.address) as running:
        yield running


@pytest.mark.parametrize(
    ("code", "http_status", "kind", "words"),
    [
        ("ExpiredToken", 400, CredentialsRejectedError, "expired"),
        ("InvalidToken", 400, CredentialsRejectedError, "AWS_SESSION_TOKEN"),
        ("InvalidAccessKeyId", 403, CredentialsRejectedError, "AWS_ACCESS_KEY_ID"),
        ("SignatureDoesNotMatch", 403, CredentialsRejectedError, "aws configure"),
        ("RequestTimeTooSkewed", 403, CredentialsRejectedError, "clock"),
        ("AccessDenied", 403, StoragePermissionError, "s3:GetObject"),
        ("NoSuchBucket", 404, BucketNotFoundError, "aws s3 mb"),
        ("NoSuchKey", 404, ObjectMissingError, "checkpoints/id/name"),
        ("PermanentRedirect", 301, StorageError, "AWS_DEFAULT_REGION=eu-west-7"),
        ("InvalidRequest", 400, StorageError, "InvalidRequest"),
        ("SlowDown", 503, TransientError, "SlowDown"),
        ("RequestTimeout", 400, TransientError, "RequestTimeout"),
        ("ThrottlingException", 400, TransientError, "Throttling"),
        ("InternalError", 500, TransientError, "InternalError"),
    ],
)
def test_each_refusal_is_told_as_what_it_means(
    moto: BucketServer, proxy: Proxy, open_s3: OpenS3, code: str, http_status: int, kind: type[Exception], words: str
) -> None:
    """Each refusal has its own error, also for HEAD, and no error has a secret."""
    bucket = open_s3(moto, proxy, access_key=ACCESS_KEY, secret_key=SECRET_KEY)
    proxy.fault(lambda request: True, refusing(code, http_status))

    with pytest.raises(kind, match=words) as of_head:
        bucket.stat("id/name")
    with pytest.raises(kind, match=words) as of_get:
        bucket.read("id/name", 0, 1, lambda piece: None)

    for raised in (of_head, of_get):
        text = "".join(traceback.format_exception(raised.value))
        assert not any(secret in text for secret in (ACCESS_KEY, SECRET_KEY, "Signature=", "planted-token"))


def test_a_redirect_without_words_names_the_region(moto: BucketServer, proxy: Proxy, open_s3: OpenS3) -> None:
    """A redirect without a body names the bucket's region from its header."""
    bucket = open_s3(moto, proxy)

    def redirect(exchange: Exchange) -> None:
        exchange.drain_request()
        exchange.answer("301 Moved Permanently", {"x-amz-bucket-region": "eu-west-7"}, b"")

    proxy.fault(lambda request: True, redirect)

    with pytest.raises(StorageError, match="the bucket is in the region eu-west-7"):
        list(bucket.list())


@pytest.mark.parametrize(
    ("ask", "permission"),
    [
        (lambda bucket: bucket.put("name", b"1"), "s3:PutObject"),
        (lambda bucket: bucket.begin("name", entry(b"1")), "s3:PutObject"),
        (lambda bucket: list(bucket.list()), "s3:ListBucket"),
        (lambda bucket: bucket.delete("name"), "s3:DeleteObject"),
        (lambda bucket: bucket.abort_uploads(""), "s3:ListBucketMultipartUploads"),
    ],
)
def test_a_missing_permission_is_named(
    moto: BucketServer, proxy: Proxy, open_s3: OpenS3, ask: Callable[[S3Bucket], object], permission: str
) -> None:
    """A missing permission is named by its IAM action."""
    bucket = open_s3(moto, proxy)
    proxy.fault(lambda request: True, refusing("AccessDenied", 403))

    with pytest.raises(StoragePermissionError) as raised:
        ask(bucket)

    assert raised.value.permission == permission


def test_credentials_that_are_wrong_are_rejected(seaweedfs: BucketServer, open_s3: OpenS3) -> None:
    """An unknown key and a wrong secret are rejected as credentials."""
    known = seaweedfs.variables()["AWS_ACCESS_KEY_ID"]
    unknown_key = open_s3(seaweedfs, access_key=ACCESS_KEY, secret_key=SECRET_KEY)
    wrong_secret = open_s3(seaweedfs, access_key=known, secret_key=SECRET_KEY)

    for bucket in (unknown_key, wrong_secret):
        for ask in (lambda: bucket.put("name", b"1"), lambda: bucket.stat("name"), lambda: list(bucket.list())):  # noqa: B023
            with pytest.raises(CredentialsRejectedError):
                ask()


def test_credentials_that_are_not_there_are_asked_for(
    moto: BucketServer, open_s3: OpenS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing credentials are named by their variables before any request."""
    bucket = open_s3(moto)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

    with pytest.raises(CredentialsMissingError, match="AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        bucket.put("name", b"1")


@pytest.mark.parametrize("fault", [captive_portal(), redirect_to_portal(), status(502)])
def test_an_answer_that_is_not_s3s_may_pass(moto: BucketServer, proxy: Proxy, open_s3: OpenS3, fault: Fault) -> None:
    """An answer that is not S3's, such as a login page, is a transient error."""
    bucket = open_s3(moto, proxy)
    bucket.put("name", b"content")
    upload = bucket.begin("large", entry(b"content"))
    proxy.fault(lambda request: True, fault)

    for ask in (
        lambda: bucket.put("name", b"1"),
        lambda: bucket.read("name", 0, 1, lambda piece: None),
        lambda: bucket.stat("name"),
        lambda: list(bucket.list()),
        lambda: bucket.delete("name"),
        lambda: bucket.begin("large", entry(b"content")),
        lambda: upload.put_part(0, b"content"),
        lambda: upload.complete(),
        lambda: bucket.abort_uploads(""),
    ):
        with pytest.raises(TransientError):
            ask()


def test_a_page_of_well_formed_xml_is_no_empty_list(moto: BucketServer, proxy: Proxy, open_s3: OpenS3) -> None:
    """A login page in well-formed XML is not taken for an empty listing."""
    bucket = open_s3(moto, proxy)
    proxy.fault(lambda request: True, answering("200 OK", b"<html><body>Log in</body></html>"))

    for ask in (lambda: list(bucket.list()), lambda: bucket.delete("name"), lambda: bucket.abort_uploads("")):
        with pytest.raises(TransientError, match="login page"):
            ask()


def test_a_store_that_asks_for_a_pause_is_heard(moto: BucketServer, proxy: Proxy, open_s3: OpenS3) -> None:
    """A pause that the store asks for is passed on, and the request is not repeated."""
    bucket = open_s3(moto, proxy)
    proxy.fault(lambda request: True, status(429, retry_after_s=7))

    with pytest.raises(TransientError) as raised:
        bucket.put("name", b"1")

    assert raised.value.retry_after_s == 7
    assert proxy.requests == 1


@pytest.mark.parametrize("fault", [drop_answer(after_bytes=100_000), truncate_answer(after_bytes=100_000)])
def test_an_answer_that_breaks_off_may_pass(moto: BucketServer, proxy: Proxy, open_s3: OpenS3, fault: Fault) -> None:
    """An answer that breaks off is a transient error, and the bytes that came are right."""
    bucket = open_s3(moto, proxy)
    content = bytes(range(256)) * 2000
    bucket.put("name", content)
    proxy.reset()
    proxy.fault(1, fault)
    arrived = bytearray()

    with pytest.raises(TransientError, match="broke off"):
        bucket.read("name", 0, len(content), arrived.extend)

    assert content.startswith(bytes(arrived))
    bucket.read("name", len(arrived), len(content) - len(arrived), arrived.extend)
    assert arrived == content


def test_a_completion_whose_answer_was_lost_can_be_repeated(moto: BucketServer, proxy: Proxy, open_s3: OpenS3) -> None:
    """A completion whose answer was lost can be repeated."""
    bucket = open_s3(moto, proxy)
    upload = begun(bucket, "name", b"content")
    upload.put_part(0, b"content")
    proxy.fault(is_completion, lose_answer())
    with pytest.raises(TransientError):
        upload.complete()

    proxy.fault(is_completion, refusing("NoSuchUpload", 404))
    upload.complete()

    assert bucket.stat("name").size_bytes == 7


def test_an_upload_that_somebody_aborted_is_not_taken_for_complete(
    moto: BucketServer, proxy: Proxy, open_s3: OpenS3
) -> None:
    """An aborted upload is not taken for complete, even if an object of the same size exists."""
    bucket = open_s3(moto, proxy)
    upload = begun(bucket, "name", b"content")
    upload.put_part(0, b"content")
    proxy.fault(is_completion, refusing("NoSuchUpload", 404))

    with pytest.raises(ObjectMissingError):
        upload.complete()
    bucket.put("name", b"CONTENT")
    with pytest.raises(ObjectMissingError):
        upload.complete()


def test_a_completion_that_fails_in_its_answer_may_pass(moto: BucketServer, proxy: Proxy, open_s3: OpenS3) -> None:
    """A completion whose answer of 200 contains an error is a transient error."""
    bucket = open_s3(moto, proxy)
    upload = begun(bucket, "name", b"content")
    upload.put_part(0, b"content")
    proxy.fault(is_completion, answering("200 OK", b"<Error><Code>InternalError</Code></Error>"))

    with pytest.raises(TransientError, match="InternalError"):
        upload.complete()


def test_a_write_that_meets_another_may_pass(moto: BucketServer, proxy: Proxy, open_s3: OpenS3) -> None:
    """A conflict between concurrent writes is a transient error."""
    bucket = open_s3(moto, proxy)
    proxy.fault(1, refusing("ConditionalRequestConflict", 409))

    with pytest.raises(TransientError):
        bucket.put("name", b"first", if_absent=True)
    bucket.put("name", b"first", if_absent=True)
    with pytest.raises(ObjectExistsError):
        bucket.put("name", b"second", if_absent=True)


def test_a_server_that_refuses_checksums_is_served_without(moto: BucketServer, proxy: Proxy, open_s3: OpenS3) -> None:
    """After a refusal of checksums, requests carry Content-MD5 instead."""
    bucket = open_s3(moto, proxy)
    proxy.fault(names_checksum, refusing("InvalidArgument", 400, "Unsupported header 'x-amz-checksum-crc32c'"))

    with pytest.raises(TransientError):
        bucket.put("name", b"content")
    bucket.put("name", b"content")
    upload = begun(bucket, "large", b"content")
    upload.put_part(0, b"content")
    upload.complete()

    assert {found.name: found.size_bytes for found in bucket.list()} == {"name": 7, "large": 7}
    assert bucket.stat("large").size_bytes == 7
    bucket.delete("name")


def test_a_reader_learns_that_too(moto: BucketServer, proxy: Proxy, open_s3: OpenS3) -> None:
    """A HEAD request also notices that the server refuses checksums."""
    bucket = open_s3(moto, proxy)
    bucket.put("name", b"content")
    proxy.fault(names_checksum, refusing("InvalidArgument", 400, "Unsupported header 'x-amz-checksum-mode'"))
    reader = S3Bucket(bucket.url.split("/")[2], "checkpoints", endpoint_url="http://{}:{}".format(*proxy.address))

    with pytest.raises(TransientError):
        reader.stat("name")

    assert reader.stat("name").size_bytes == 7
    reader.close()


def test_a_server_without_preconditions_is_served_without(moto: BucketServer, proxy: Proxy, open_s3: OpenS3) -> None:
    """After a refusal of preconditions, requests are sent without them."""
    bucket = open_s3(moto, proxy)
    body = b"<Error><Code>NotImplemented</Code><Message>A header implies functionality</Message></Error>"
    proxy.fault(lambda request: request.head.get("if-none-match") is not None, answering("501 No", body))

    with pytest.raises(TransientError):
        bucket.put("name", b"content", if_absent=True)
    bucket.put("name", b"content", if_absent=True)

    assert bucket.stat("name").size_bytes == 7


@pytest.mark.parametrize("control", ["\x01", "\r", "\n", "\uffff"])
def test_a_name_that_xml_cannot_hold_is_deleted_like_others(
    seaweedfs: BucketServer, open_s3: OpenS3, control: str
) -> None:
    """A name that XML cannot hold can be deleted."""
    bucket = open_s3(seaweedfs)
    names = [f"id/a{control}b", "id/c"]
    for name in names:
        bucket.put(name, b"content")

    for name in (*names, f"id/never{control}there"):
        bucket.delete(name)

    assert list(bucket.list("id/")) == []


def test_what_was_damaged_on_its_way_is_noticed(seaweedfs: BucketServer, open_s3: OpenS3) -> None:
    """Damaged parts are refused by the store, and no object becomes visible."""
    bucket = open_s3(seaweedfs)
    upload = begun(bucket, "name", b"content")
    upload.put_part(0, b"CONTENT")

    with pytest.raises(TransientError, match="BadDigest"):
        upload.complete()

    assert list(bucket.list()) == []
    upload.abort()


def test_the_store_tells_the_checksum_of_a_whole_object(seaweedfs: BucketServer, open_s3: OpenS3) -> None:
    """The store returns the checksum of a whole object, even of one that was sent in parts."""
    bucket = open_s3(seaweedfs)
    content = bytes(range(256)) * (6 * MIB // 256)
    upload = begun(bucket, "large", content)
    for index in (1, 0):
        upload.put_part(index, content[index * upload.part_bytes :][: upload.part_bytes])
    upload.complete()
    bucket.put("small", b"content")

    assert bucket.stat("large").crc32c == entry(content).crc32c
    assert bucket.stat("small").crc32c == entry(b"content").crc32c


def test_all_pages_of_begun_uploads_are_aborted(moto: BucketServer, proxy: Proxy, open_s3: OpenS3) -> None:
    """Unfinished uploads on all pages are aborted, whatever their names."""
    bucket = open_s3(moto, proxy)
    for name in ("id/a b", "id/c+d"):
        bucket.begin(name, entry(b"content"))
    uploads = {upload["Key"]: upload["UploadId"] for upload in listed_uploads(moto, bucket)}
    first, second = (
        page(f"checkpoints%2Fid%2F{shown}", uploads[f"checkpoints/id/{name}"], is_last)
        for shown, name, is_last in (("a+b", "a b", False), ("c%2Bd", "c+d", True))
    )
    proxy.fault(lambda request: "uploads" in request.query.split("&") or "uploads=" in request.query, first)
    proxy.fault(lambda request: "key-marker=checkpoints%2Fid%2Fa%20b" in request.query, second)

    num_aborted = bucket.abort_uploads("id/")

    assert num_aborted == 2
    assert listed_uploads(moto, bucket) == []


def test_an_endpoint_with_credentials_is_refused_without_repeating_them() -> None:
    """An endpoint URL with credentials is refused without repeating them."""
    with pytest.raises(ValueError, match="endpoint_url holds credentials") as raised:
        S3Bucket("bucket", "", endpoint_url=f"http://{ACCESS_KEY}:{SECRET_KEY}@host")

    assert ACCESS_KEY not in str(raised.value)
    assert SECRET_KEY not in str(raised.value)


@pytest.mark.parametrize("endpoint_url", ["host:9000", "ftp://host", "http://", "http://host:99999", "http://host?a=b"])
def test_an_endpoint_that_is_none_is_refused(endpoint_url: str) -> None:
    """An invalid endpoint URL is refused when the bucket is made."""
    with pytest.raises(ValueError, match="http://host:port"):
        S3Bucket("bucket", "", endpoint_url=endpoint_url)


def test_half_of_the_credentials_is_refused() -> None:
    """A key without its secret is refused."""
    with pytest.raises(ValueError, match="give both, or neither"):
        S3Bucket("bucket", "", access_key=ACCESS_KEY)


def test_the_url_names_bucket_prefix_and_endpoint_and_no_credentials() -> None:
    """The URL has bucket, prefix and endpoint, but no credentials."""
    bucket = S3Bucket("bucket", "/a/b/", endpoint_url="http://host:9000", access_key=ACCESS_KEY, secret_key=SECRET_KEY)

    assert bucket.url == "s3://bucket/a/b?endpoint_url=http%3A%2F%2Fhost%3A9000"
    assert S3Bucket("bucket", "").url == "s3://bucket"
    assert bucket.where("id/file") == "s3://bucket/a/b/id/file"


def test_the_etag_of_parts_is_known_where_theirs_are_md5s() -> None:
    """The ETag of an object in parts is computed from MD5 ETags, and is empty for others."""
    parts = [{"ETag": '"f5c72844814e523517b0bcbc17eb638b"'}, {"ETag": '"98bd1c45684cf587ac2347a92dd7bb51"'}]

    assert etag_of_parts(parts) == "8ec6ee3b686da51b6b5fe682e54cc8e2-2"
    assert etag_of_parts([{"ETag": '"no-md5"'}]) == ""


def test_a_missing_library_is_named(run_script: Callable[..., tuple[int, str, str]]) -> None:
    """If boto3 is missing, the error has the command that installs it."""
    status, _, errors = run_script(
        """
        import sys
        sys.modules["boto3"] = None
        import core_sdk._home.storage.bucket.s3._bucket
        """
    )

    assert status == 1
    assert 'a checkpoint storage in S3 needs boto3: pip install "boto3>=' in errors


def begun(bucket: S3Bucket, name: str, content: bytes) -> S3PartedUpload:
    upload = bucket.begin(name, entry(content))
    assert isinstance(upload, S3PartedUpload)
    return upload


def entry(content: bytes) -> FileEntry:
    return FileEntry(size_bytes=len(content), crc32c=f"{google_crc32c.value(content):08x}")


def is_completion(request: Request) -> bool:
    return request.method == "POST" and "uploadId" in request.query


def names_checksum(request: Request) -> bool:
    return any(name.lower().startswith("x-amz-checksum") for name, _ in request.head.headers)


def refusing(code: str, http_status: int, message: str = "") -> Fault:
    """Returns a fault that refuses as S3 does, with the request's secrets in the message."""

    def refuse(exchange: Exchange) -> None:
        quoted = f"{message} {exchange.request.head.get('authorization')} {ACCESS_KEY} {SECRET_KEY} planted-token"
        body = f"<Error><Code>{code}</Code><Message>{quoted}</Message><Region>eu-west-7</Region></Error>"
        answering(f"{http_status} Refused", body.encode())(exchange)

    return refuse


def answering(line: str, body: bytes) -> Fault:
    def answer(exchange: Exchange) -> None:
        exchange.drain_request()
        exchange.answer(line, {"Content-Type": "application/xml"}, body)

    return answer


def page(key: str, upload_id: str, is_last: bool) -> Fault:
    """Returns a fault that answers with a page of one unfinished upload."""
    upload = f"<Upload><Key>{key}</Key><UploadId>{upload_id}</UploadId></Upload>"
    after = f"<NextKeyMarker>{key}</NextKeyMarker><NextUploadIdMarker>{upload_id}</NextUploadIdMarker>"
    body = (
        f"<ListMultipartUploadsResult><EncodingType>url</EncodingType><IsTruncated>{str(not is_last).lower()}"
        f"</IsTruncated>{after}{upload}</ListMultipartUploadsResult>"
    )
    return answering("200 OK", body.encode())


def listed_uploads(server: BucketServer, bucket: S3Bucket) -> list[dict[str, str]]:
    listed = server.client.list_multipart_uploads(Bucket=bucket.url.split("/")[2])  # type: ignore[attr-defined]
    uploads: list[dict[str, str]] = listed.get("Uploads", [])
    return uploads
