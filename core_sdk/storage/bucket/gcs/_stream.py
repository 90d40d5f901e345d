"""Large objects in one stream to Google's storage: the JSON API's resumable upload.

https://cloud.google.com/storage/docs/performing-resumable-uploads
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import requests

from core_sdk.records import FileEntry
from core_sdk.storage.bucket._bucket import OnBytes, StreamedUpload, TransientError
from core_sdk.storage.bucket.gcs import _objects as objects
from core_sdk.storage.bucket.gcs._client import GcsClient, Pieces, base64_of, hex_of, json_of, version_of
from core_sdk.storage.bucket.gcs._errors import refusal

# Of the file, held at a time.
_PIECE_BYTES = 256 << 10
# The session has expired or was cancelled, or what we send does not fit what it holds.
_SESSION_IS_USELESS = frozenset({400, 404, 410, 412})
_INCOMPLETE = 308


class GcsStream(StreamedUpload):
    """Memory does not grow with the file; what has arrived is kept by the store for a week."""

    def __init__(self, wire: GcsClient, name: str, entry: FileEntry) -> None:
        self.num_sent_bytes = 0
        self._wire = wire
        self._name = name
        self._entry = entry
        self._purpose = wire.purpose(name, "storage.objects.create")
        # Whoever knows the URL may write the object: it is told to nobody.
        self._session_url: str | None = None
        self._num_told_bytes = 0
        self._is_complete = False

    def send(self, path: Path, on_bytes: OnBytes) -> None:
        if self._is_complete:
            return
        url = self._session_url
        if url is None:
            url = self._session_url = self._begin()
        else:
            self._ask_what_arrived(url)
        if not self._is_complete:
            self._send_rest(url, path, on_bytes)

    def abort(self) -> None:
        if self._session_url is not None and not self._is_complete:
            # Google says 499, emulators what they like. A session that stays expires, and is never an object.
            self._wire.ask("DELETE", self._session_url, self._purpose, accept=range(600))
            self._forget()

    def _begin(self) -> str:
        answer = self._wire.ask(
            "POST",
            self._wire.upload_url(uploadType="resumable"),
            self._purpose,
            headers={
                "Content-Type": "application/json; charset=UTF-8",
                "X-Upload-Content-Type": "application/octet-stream",
                "X-Upload-Content-Length": str(self._entry.size_bytes),
            },
            body=json.dumps({"name": self._wire.key(self._name), "crc32c": base64_of(self._entry.crc32c)}),
        )
        location = answer.headers.get("Location")
        if location is None:
            raise TransientError("the store named no upload session")
        return self._wire.session_url(location)

    def _ask_what_arrived(self, url: str) -> None:
        self._take(self._put(url, f"bytes */{self._entry.size_bytes}", Pieces()))

    def _send_rest(self, url: str, path: Path, on_bytes: OnBytes) -> None:
        start, size_bytes = self.num_sent_bytes, self._entry.size_bytes
        if start < size_bytes:
            body = _Rest(path, start, size_bytes, partial(self._note, on_bytes))
            self._take(self._put(url, f"bytes {start}-{size_bytes - 1}/{size_bytes}", body))
        else:
            self._ask_what_arrived(url)
        if not self._is_complete:
            raise TransientError(f"the store took {self.num_sent_bytes:,} of {size_bytes:,} bytes")

    def _put(self, url: str, content_range: str, body: Iterable[bytes]) -> requests.Response:
        accept = _SESSION_IS_USELESS | {_INCOMPLETE}
        return self._wire.ask(
            "PUT", url, self._purpose, headers={"Content-Range": content_range}, body=body, accept=accept
        )

    def _take(self, answer: requests.Response) -> None:
        if answer.status_code in _SESSION_IS_USELESS:
            self._forget()
            raise TransientError(f"the upload has to begin anew: the store answered {refusal(answer)}")
        if answer.status_code == _INCOMPLETE:
            self.num_sent_bytes = _num_bytes_in(answer)
        else:
            self._verify(json_of(answer))

    def _verify(self, resource: dict[str, Any]) -> None:
        """Emulators make an object of what has arrived when they are merely asked how much that is."""
        found = (resource.get("size"), hex_of(resource.get("crc32c")))
        if found != (str(self._entry.size_bytes), self._entry.crc32c):
            self._forget()
            objects.delete(self._wire, self._name, version_of(resource))
            raise TransientError("the store holds other bytes than were sent")
        self.num_sent_bytes = self._entry.size_bytes
        self._is_complete = True

    def _forget(self) -> None:
        self._session_url = None
        self.num_sent_bytes = 0

    def _note(self, on_bytes: OnBytes, num_sent_bytes: int) -> None:
        """Tells of each byte once, however often it travels."""
        self.num_sent_bytes = num_sent_bytes
        new_bytes = num_sent_bytes - self._num_told_bytes
        if new_bytes > 0:
            self._num_told_bytes += new_bytes
            on_bytes(new_bytes)


class _Rest:
    """A request's body: the file from `start` to `end`, as it is read, and again from `start` if a token is renewed."""

    def __init__(self, path: Path, start: int, end: int, on_position: Callable[[int], object]) -> None:
        self._path = path
        self._start = start
        self._end = end
        self._on_position = on_position

    def __len__(self) -> int:
        return self._end - self._start

    def __iter__(self) -> Iterator[bytes]:
        position = self._start
        with self._path.open("rb", buffering=0) as file:
            file.seek(position)
            while piece := file.read(min(_PIECE_BYTES, self._end - position)):
                yield piece
                position += len(piece)
                self._on_position(position)
        if position < self._end:
            raise TransientError("the file is shorter than it was")


def _num_bytes_in(answer: requests.Response) -> int:
    """No Range header says that nothing has arrived."""
    known = re.fullmatch(r"bytes=0-(\d+)", answer.headers.get("Range", ""))
    return int(known.group(1)) + 1 if known else 0
