"""Checkpoints in Amazon S3, and in servers that speak like it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, unquote_plus

from core_sdk._ground.records import FileEntry
from core_sdk._home.storage.bucket._bucket import (
    Bucket,
    ObjectExistsError,
    ObjectMissingError,
    PartedUpload,
    Sink,
    StoredObject,
    TransientError,
    hand_on,
)
from core_sdk._home.storage.bucket._refusals import FOREIGN_ANSWER
from core_sdk._home.storage.bucket._settings import check_s3
from core_sdk._home.storage.bucket.s3._capabilities import crc32c_of
from core_sdk._home.storage.bucket.s3._client import S3Client
from core_sdk._home.storage.bucket.s3._refusals import S3
from core_sdk._home.storage.bucket.s3._upload import S3PartedUpload

_MIB = 1 << 20
_NO_CONTENT = 204


class S3Bucket(Bucket):
    """The objects under `prefix` in `bucket`, with the credentials that boto3 finds unless they are given."""

    def __init__(
        self,
        bucket: str,
        prefix: str,
        *,
        access_key: str | None = None,
        secret_key: str | None = None,
        endpoint_url: str | None = None,
        timeout_s: float = 60,
        part_bytes: int = 16 * _MIB,
    ) -> None:
        """Makes no request. Raises `ValueError` for an endpoint that is not a URL, or that holds credentials.

        Parts of large objects have at least `part_bytes`; S3 accepts no less than 5 MiB.
        """
        check_s3(access_key, secret_key, endpoint_url)
        prefix = prefix.strip("/")
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        if endpoint_url is not None:
            self.url += f"?endpoint_url={quote(endpoint_url, safe='')}"
        self._part_bytes = part_bytes
        self._client = S3Client(bucket, prefix, (access_key, secret_key), endpoint_url, timeout_s)

    def put(self, name: str, content: bytes, *, if_absent: bool = False, if_version: str | None = None) -> None:
        capabilities = self._client.capabilities
        preconditions = capabilities.for_preconditions(if_absent, if_version)
        integrity = capabilities.for_content(content)
        try:
            answer = self._client.of_object("PutObject", name, Body=content, **integrity, **preconditions)
        except ObjectMissingError as error:
            raise ObjectExistsError(self.where(name)) from error  # with `if_version`, and the object is gone
        if "ETag" not in answer:
            raise TransientError(FOREIGN_ANSWER)
        capabilities.check_arrived(content, answer)

    def begin(self, name: str, entry: FileEntry) -> PartedUpload:
        return S3PartedUpload(self._client, name, entry, self._part_bytes)

    def read(self, name: str, start: int, size_bytes: int, sink: Sink) -> None:
        answer = self._client.of_object("GetObject", name, Range=f"bytes={start}-{start + size_bytes - 1}")
        with contextlib.closing(answer["Body"]) as body, S3.translated(self._client.request("GetObject", name)):
            pieces = iter(lambda: body.read(_MIB), b"")
            hand_on(answer.get("ContentRange"), pieces, start, size_bytes, self.where(name), sink)

    def stat(self, name: str) -> StoredObject:
        answer = self._client.head(name)
        if "ETag" not in answer:
            raise TransientError(FOREIGN_ANSWER)
        return _stored(name, answer, answer["ContentLength"])

    def list(self, under: str = "") -> Iterator[StoredObject]:
        root = self._client.root
        for page in self._pages("ListObjectsV2", under, _after_objects, Prefix=root + under):
            for found in page.get("Contents", ()):
                # Consoles make an empty object with the name of the prefix, as a folder.
                if name := found["Key"].removeprefix(root):
                    yield _stored(name, found, found["Size"])

    def delete(self, name: str) -> None:
        with contextlib.suppress(ObjectMissingError):
            answer = self._client.of_object("DeleteObject", name)
            if answer["ResponseMetadata"]["HTTPStatusCode"] != _NO_CONTENT:
                raise TransientError(FOREIGN_ANSWER)

    def abort_uploads(self, under: str) -> int:
        root = self._client.root
        pages = self._pages("ListMultipartUploads", under, _after_uploads, Prefix=root + under, EncodingType="url")
        begun = [
            (_decoded(page, found["Key"]), found["UploadId"]) for page in pages for found in page.get("Uploads", ())
        ]
        ours = [(key, upload_id) for key, upload_id in begun if key.startswith(root + under)]
        for key, upload_id in ours:
            with contextlib.suppress(ObjectMissingError):  # the upload has ended by itself
                self._client.of_object("AbortMultipartUpload", key.removeprefix(root), UploadId=upload_id)
        return len(ours)

    def close(self) -> None:
        self._client.close()

    def _pages(
        self, operation: str, under: str, after: Callable[[dict[str, Any]], dict[str, Any]], **parameters: Any
    ) -> Iterator[dict[str, Any]]:
        """Yields the answers to a request for a list. Each answer says where the next one begins."""
        place: dict[str, Any] = {}
        while True:
            page = self._client.of_bucket(operation, under, **parameters, **place)
            if "IsTruncated" not in page:
                raise TransientError(FOREIGN_ANSWER)
            yield page
            if not page["IsTruncated"]:
                return
            place = after(page)


def _after_objects(page: dict[str, Any]) -> dict[str, Any]:
    return {"ContinuationToken": page["NextContinuationToken"]}


def _after_uploads(page: dict[str, Any]) -> dict[str, Any]:
    return {"KeyMarker": _decoded(page, page["NextKeyMarker"]), "UploadIdMarker": page["NextUploadIdMarker"]}


def _decoded(page: dict[str, Any], key: str) -> str:
    """Returns the key, which servers encode if they can, since XML cannot hold every key."""
    return unquote_plus(key) if page.get("EncodingType") == "url" else key


def _stored(name: str, answer: dict[str, Any], size_bytes: int) -> StoredObject:
    return StoredObject(
        name=name,
        size_bytes=size_bytes,
        updated=answer["LastModified"].timestamp(),
        version=answer["ETag"].strip('"'),
        crc32c=crc32c_of(answer),
    )
