"""The connections to Google's storage: credentials, addresses, and the requests that Google's library cannot make.

Google's library asks for lists, deletes and copies. The bytes travel past it: its own uploads keep whole chunks in
memory, and when one breaks off, it cannot go on after what has arrived.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import requests
from google.cloud import storage
from requests.adapters import HTTPAdapter

from core_sdk.errors import UnknownStorageError
from core_sdk.storage.bucket._bucket import ObjectMissingError, StoredObject, TransientError
from core_sdk.storage.bucket._secrets import hide_in_logs
from core_sdk.storage.bucket.gcs._errors import NOT_THE_STORE, Purpose, check, translated_errors

# With one socket per thread of those who transfer; more would be opened and thrown away.
_NUM_SOCKETS = 32
_SOCKET_BLOCK_BYTES = 1 << 20
# `sendall` gets the time-out as a whole, so that a slow line needs small pieces.
_PIECE_BYTES = 256 << 10


class Pieces:
    """A request's body, which travels piece by piece, and again from its start if a token had to be renewed."""

    def __init__(self, *contents: bytes) -> None:
        self._contents = contents

    def __len__(self) -> int:
        return sum(map(len, self._contents))

    def __iter__(self) -> Iterator[bytes]:
        if len(self) <= _PIECE_BYTES:
            yield b"".join(self._contents)
            return
        for content in self._contents:
            for start in range(0, len(content), _PIECE_BYTES):
                yield content[start : start + _PIECE_BYTES]


class GcsClient:
    """One bucket, seen through its prefix. Safe in threads."""

    def __init__(self, url: str, bucket: str, prefix: str, timeout_s: float) -> None:
        self.url = url
        self.bucket = bucket
        self.timeout_s = timeout_s
        self._base = f"{prefix}/" if prefix else ""
        with translated_errors(Purpose(url, "storage.objects.list")):
            # None stands for no project, which only creating buckets would need.
            self.library: Any = storage.Client(project=None)
            self._session: requests.Session = self.library._http
        # What STORAGE_EMULATOR_HOST says, if it is set: then the library uses no credentials.
        self._endpoint: str = self.library.api_endpoint
        if urlsplit(self._endpoint).scheme not in ("http", "https"):
            raise UnknownStorageError(url, "STORAGE_EMULATOR_HOST is no URL, such as http://localhost:4443")
        self._adapt()

    def _adapt(self) -> None:
        hide_in_logs("urllib3.connectionpool", "google.auth.transport.requests")
        # With it each first call starts a thread that asks for the bucket's own data, for traces that nobody takes.
        self.library._bucket_metadata_cache = None
        # The library follows redirects. We want to hear of them: they lead to login pages.
        self._session.max_redirects = 0
        # What the environment says of proxies and certificates, once: asked at each request it is a third of its cost.
        settings = self._session.merge_environment_settings(self._endpoint, {}, None, None, None)
        self._session.proxies, self._session.verify = settings["proxies"], settings["verify"]
        self._session.trust_env = False
        # A session with a client certificate has an adapter that holds it.
        if not getattr(self._session, "is_mtls", False):
            for scheme in ("http://", "https://"):
                self._session.mount(scheme, _LargeBlocks(pool_maxsize=_NUM_SOCKETS))

    def key(self, name: str) -> str:
        return self._base + name

    def name(self, key: str) -> str:
        return key.removeprefix(self._base)

    def purpose(self, name: str, permission: str, *, needs_object: bool = False) -> Purpose:
        return Purpose(f"{self.url}/{name}".rstrip("/"), permission, needs_object)

    def upload_url(self, **query: str) -> str:
        return f"{self._endpoint}/upload/storage/v1/b/{quote(self.bucket)}/o?{urlencode(query)}"

    def media_url(self, name: str) -> str:
        return (
            f"{self._endpoint}/download/storage/v1/b/{quote(self.bucket)}/o/{quote(self.key(name), safe='')}?alt=media"
        )

    def xml_url(self, key: str, **query: str | int) -> str:
        # Slashes are quoted too, as Google's library does: a name may hold "..", which a URL's path may not.
        return f"{self._endpoint}/{quote(self.bucket)}/{quote(key, safe='~')}?{urlencode(query)}".replace(
            "uploads=", "uploads"
        )

    def ask(
        self,
        method: str,
        url: str,
        purpose: Purpose,
        *,
        headers: Mapping[str, str] | None = None,
        body: Iterable[bytes] | bytes | None = None,
        accept: Container[int] = (),
        stream: bool = False,
    ) -> requests.Response:
        """The answer, if it is a success of the store or has a status in `accept`; else an error of `Bucket`."""
        with translated_errors(purpose):
            answer = self._session.request(
                method,
                url,
                data=body,
                headers=dict(headers or {}),
                timeout=self.timeout_s,
                allow_redirects=False,
                stream=stream,
            )
            if answer.status_code not in accept:
                check(answer, purpose)
            return answer

    def blob(self, name: str, generation: str | None = None) -> Any:
        """The library's `Blob`; asks for nothing yet."""
        return self.library.bucket(self.bucket).blob(self.key(name), generation=generation)

    def stat(self, name: str) -> StoredObject:
        """Raises `ObjectMissingError`."""
        blob = self.blob(name)
        with translated_errors(self.purpose(name, "storage.objects.get", needs_object=True)):
            blob.reload(timeout=self.timeout_s, retry=None)
        return self.stored_object(blob)

    def delete(self, name: str, version: str | None = None) -> None:
        """Deletes the object, if it is there and of this version."""
        blob = self.blob(name, version)
        purpose = self.purpose(name, "storage.objects.delete", needs_object=True)
        with contextlib.suppress(ObjectMissingError), translated_errors(purpose):
            blob.delete(if_generation_match=version, timeout=self.timeout_s, retry=None)

    def stored_object(self, blob: Any) -> StoredObject:
        if blob.size is None or blob.generation is None or blob.updated is None:
            raise TransientError(NOT_THE_STORE)
        return StoredObject(
            name=self.name(blob.name),
            size_bytes=int(blob.size),
            updated=blob.updated.timestamp(),
            version=str(blob.generation),
            crc32c=None if blob.crc32c is None else base64.b64decode(blob.crc32c).hex(),
        )

    def close(self) -> None:
        self.library.close()


class _LargeBlocks(HTTPAdapter):
    """Sockets that are written and read in blocks of 1 MiB, where 16 KiB are usual."""

    def init_poolmanager(self, *arguments: Any, **keywords: Any) -> None:
        super().init_poolmanager(*arguments, blocksize=_SOCKET_BLOCK_BYTES, **keywords)


def base64_of(crc32c: str) -> str:
    """Google writes a CRC-32C as base64 of its four bytes, we as hexadecimal digits."""
    return base64.b64encode(bytes.fromhex(crc32c)).decode()
