"""The connections to Google's storage: credentials, addresses, and the requests that Google's library cannot make.

Google's library makes the requests that list and delete. Contents do not pass through it: its uploads keep whole
chunks in memory, and cannot resume after the bytes that have arrived.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import requests
from google.cloud import storage
from requests.adapters import HTTPAdapter

from core_sdk._home.storage.bucket._bucket import ObjectMissingError, StoredObject, TransientError
from core_sdk._home.storage.bucket._refusals import FOREIGN_ANSWER, StoreRequest
from core_sdk._home.storage.bucket._secrets import hide_in_logs
from core_sdk._home.storage.bucket.gcs._refusals import GOOGLE, check
from core_sdk.errors import UnknownStorageError

# How long the store may be silent.
TIMEOUT_S = 60.0
# At least one socket for each thread of a transfer; sockets beyond this number would be closed after each request.
_NUM_SOCKETS = 32
_SOCKET_BLOCK_BYTES = 1 << 20
# The time-out applies to a whole `sendall`, so that a slow line needs small pieces.
_PIECE_BYTES = 256 << 10


class Pieces:
    """A request's body, sent piece by piece; sent again from its start if a token had to be renewed."""

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
    """The connections to a bucket. Object names are relative to the prefix. Safe in threads."""

    def __init__(self, url: str, bucket: str, prefix: str) -> None:
        self.url = url
        self.bucket = bucket
        self._base = f"{prefix}/" if prefix else ""
        with GOOGLE.translated(StoreRequest(url, "storage.objects.list")):
            # A project is needed only to create buckets.
            self.library: Any = storage.Client(project=None)
            self._session = _session_of(self.library)
        # The value of STORAGE_EMULATOR_HOST, if it is set; then the library uses no credentials.
        self._endpoint: str = self.library.api_endpoint
        if urlsplit(self._endpoint).scheme not in ("http", "https"):
            raise UnknownStorageError(url, "STORAGE_EMULATOR_HOST is no URL, such as http://localhost:4443")
        self._adapt()

    def _adapt(self) -> None:
        hide_in_logs("urllib3.connectionpool", "google.auth.transport.requests")
        # With this cache a first call starts a thread that fetches the bucket's metadata, for traces that are not used.
        self.library._bucket_metadata_cache = None
        # A redirect leads to a login page. It is reported as an error instead of being followed.
        self._session.max_redirects = 0
        # Reads the environment's proxies and certificates once. Reading them takes a third of the time of a request.
        settings = self._session.merge_environment_settings(self._endpoint, {}, None, None, None)
        self._session.proxies, self._session.verify = settings["proxies"], settings["verify"]
        self._session.trust_env = False
        # A session with a client certificate keeps it in its adapter.
        if not getattr(self._session, "is_mtls", False):
            for scheme in ("http://", "https://"):
                self._session.mount(scheme, _LargeBlocks(pool_maxsize=_NUM_SOCKETS))

    def key(self, name: str) -> str:
        return self._base + name

    def name(self, key: str) -> str:
        return key.removeprefix(self._base)

    def request(self, name: str, permission: str, *, needs_object: bool = False) -> StoreRequest:
        """Describes a request for errors."""
        return StoreRequest(f"{self.url}/{name}".rstrip("/"), permission, needs_object)

    def upload_url(self, **query: str) -> str:
        return f"{self._endpoint}/upload/storage/v1/b/{quote(self.bucket)}/o?{urlencode(query)}"

    def media_url(self, name: str) -> str:
        return (
            f"{self._endpoint}/download/storage/v1/b/{quote(self.bucket)}/o/{quote(self.key(name), safe='')}?alt=media"
        )

    def xml_url(self, key: str, **query: str | int) -> str:
        # Slashes are quoted too, as by Google's library: a name may hold "..", but a URL's path may not.
        return f"{self._endpoint}/{quote(self.bucket)}/{quote(key, safe='~')}?{urlencode(query)}".replace(
            "uploads=", "uploads"
        )

    def ask(
        self,
        method: str,
        url: str,
        request: StoreRequest,
        *,
        headers: Mapping[str, str] | None = None,
        body: Iterable[bytes] | bytes | None = None,
        stream: bool = False,
    ) -> requests.Response:
        """Returns the store's answer if it is a success. Raises the errors of `Bucket`."""
        with GOOGLE.translated(request):
            answer = self._session.request(
                method,
                url,
                data=body,
                headers=dict(headers or {}),
                timeout=TIMEOUT_S,
                allow_redirects=False,
                stream=stream,
            )
            check(answer, request)
            return answer

    def blob(self, name: str, generation: str | None = None) -> Any:
        """Returns the library's `Blob`, without a request."""
        return self.library.bucket(self.bucket).blob(self.key(name), generation=generation)

    def stat(self, name: str) -> StoredObject:
        """Returns what the store says about an object. Raises `ObjectMissingError`."""
        blob = self.blob(name)
        with GOOGLE.translated(self.request(name, "storage.objects.get", needs_object=True)):
            blob.reload(timeout=TIMEOUT_S, retry=None)
        return self.stored_object(blob)

    def delete(self, name: str, version: str | None = None) -> None:
        """Deletes the object, if it is there and of this version."""
        blob = self.blob(name, version)
        request = self.request(name, "storage.objects.delete", needs_object=True)
        with contextlib.suppress(ObjectMissingError), GOOGLE.translated(request):
            blob.delete(if_generation_match=version, timeout=TIMEOUT_S, retry=None)

    def stored_object(self, blob: Any) -> StoredObject:
        if blob.size is None or blob.generation is None or blob.updated is None:
            raise TransientError(FOREIGN_ANSWER)
        return StoredObject(
            name=self.name(blob.name),
            size_bytes=int(blob.size),
            updated=blob.updated.timestamp(),
            version=str(blob.generation),
            crc32c=None if blob.crc32c is None else base64.b64decode(blob.crc32c).hex(),
        )

    def close(self) -> None:
        self.library.close()


def _session_of(library: Any) -> requests.Session:
    """Returns the session of the library's client, which brings its credentials. Its name is private, and old."""
    session = getattr(library, "_http", None)
    if not isinstance(session, requests.Session):
        raise RuntimeError(
            f"the client of google-cloud-storage {storage.__version__} has no session of requests: Core SDK does not "
            "know this version yet, install an older one"
        )
    return session


class _LargeBlocks(HTTPAdapter):
    """An adapter whose sockets are read and written in blocks of 1 MiB instead of 16 KiB."""

    def init_poolmanager(self, *arguments: Any, **keywords: Any) -> None:
        super().init_poolmanager(*arguments, blocksize=_SOCKET_BLOCK_BYTES, **keywords)


def base64_of(crc32c: str) -> str:
    """Returns our hexadecimal CRC-32C as Google writes it: the base64 of its four bytes."""
    return base64.b64encode(bytes.fromhex(crc32c)).decode()
