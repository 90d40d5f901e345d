"""The sending side of a workspace's doors, by HTTP. The one adapter of `requests` here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import requests

from core_sdk._ground.decoding import json_decoder
from core_sdk._ground.version import __version__
from core_sdk._workspace.questions import decode_error
from core_sdk._workspace.wire import (
    ASKED_WRONGLY,
    VERSION,
    Allotted,
    Announcement,
    AskedArchive,
    AskedCheckpoint,
    CheckpointArrival,
    Heard,
    PieceAnswers,
    PieceHead,
    SignOfLife,
    framed,
)
from core_sdk.errors import WorkspaceError, WorkspaceRefusedError, WorkspaceUnreachableError

T = TypeVar("T")

_CONNECT_S, _ANSWER_S = 10.0, 120.0
_PART_BYTES = 1 << 20
_FULL = 507
_REFUSALS = (401, 403)


class WorkspaceConnection:
    """Asks one workspace. Its methods block, and raise `WorkspaceError`. Only one thread may use it."""

    def __init__(self, url: str, token: str = "") -> None:
        self.url = url.rstrip("/")
        self._session = requests.Session()
        self._session.headers["User-Agent"] = f"core-sdk/{__version__}"
        self._session.headers["X-Core-SDK-Action"] = "1"  # no page of another site has caused it
        if token:
            self._session.headers["Authorization"] = f"Bearer {token}"

    def announce(self, told: Announcement) -> list[Allotted]:
        return self._ask("push/trials", msgspec.json.encode(told), list[Allotted])

    def send(self, pieces: Iterable[tuple[PieceHead, bytes]]) -> PieceAnswers:
        """Sends pieces. If the disk there is full, the answers end early, and tell the problem."""
        return self._ask("push/pieces", framed(pieces), PieceAnswers)

    def checkpoint(self, asked: AskedCheckpoint) -> CheckpointArrival:
        return self._ask("push/checkpoints", msgspec.json.encode(asked), CheckpointArrival)

    def give_sign(self, sign: SignOfLife) -> Heard:
        return self._ask("push/running", msgspec.json.encode(sign), Heard)

    def ask(self, question: str, body: bytes) -> bytes:
        """Asks a question of a view. Raises the error of the view, too."""
        answer = self._post(f"ask/{question}", body)
        if answer.status_code == ASKED_WRONGLY:
            raise decode_error(answer.content).error()
        if answer.status_code != 200:
            raise self._failure(answer)
        return answer.content

    def act(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Has the workspace do something, as its page does. Returns the answer."""
        answer = self._request("POST", path, msgspec.json.encode(body), {"Content-Type": "application/json"})
        if answer.status_code != 200:
            raise self._failure(answer)
        return json_decoder(dict[str, Any])(answer.content)

    def get(self, path: str, kind: type[T]) -> T:
        """Returns what is at an address of the page's."""
        return json_decoder(kind)(self._get(path).content)

    def download(self, path: str, target: Path) -> None:
        """Writes a file of the page's into a new file. Raises `OSError`, too."""
        self._download("GET", path, b"", target)

    def fetch(self, asked: AskedArchive, target: Path) -> None:
        """Writes the archive of a trial into a new file. Raises `OSError`, and the error of `export_trials`, too."""
        self._download("POST", "fetch", msgspec.json.encode(asked), target)

    def _download(self, method: str, path: str, body: bytes, target: Path) -> None:
        address, timeout = f"{self.url}/api/v1/{path}", (_CONNECT_S, _ANSWER_S)
        try:
            with self._session.request(method, address, data=body, timeout=timeout, stream=True) as answer:
                if answer.status_code == ASKED_WRONGLY:
                    raise decode_error(answer.content).error()
                if answer.status_code != 200:
                    raise self._failure(answer)
                with target.open("xb") as file:
                    for content in answer.iter_content(_PART_BYTES):
                        file.write(content)
        except requests.RequestException as error:
            raise WorkspaceUnreachableError(self.url, str(error)) from error

    def close(self) -> None:
        self._session.close()

    def __enter__(self) -> WorkspaceConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, path: str, body: bytes, kind: type[T]) -> T:
        answer = self._post(path, body)
        try:
            if answer.status_code == 200 or (answer.status_code == _FULL and kind is PieceAnswers):
                return json_decoder(kind)(answer.content)
        except msgspec.MsgspecError as error:
            raise WorkspaceError(self.url, f"its answer is not one of version {VERSION}: {error}") from error
        raise self._failure(answer)

    def _post(self, path: str, body: bytes) -> requests.Response:
        return self._request("POST", path, body)

    def _get(self, path: str) -> requests.Response:
        if (answer := self._request("GET", path)).status_code != 200:
            raise self._failure(answer)
        return answer

    def _request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> requests.Response:
        try:
            return self._session.request(
                method,
                f"{self.url}/api/v1/{path}",
                data=body,
                headers=headers,
                timeout=(_CONNECT_S, _ANSWER_S),
                allow_redirects=False,
            )
        except requests.RequestException as error:
            raise WorkspaceUnreachableError(self.url, str(error)) from error

    def _failure(self, answer: requests.Response) -> WorkspaceError:
        if answer.status_code in _REFUSALS:
            return WorkspaceRefusedError(self.url, _told(answer))
        if answer.status_code >= 500:
            return WorkspaceUnreachableError(self.url, f"{answer.status_code}: {_told(answer)}")
        return WorkspaceError(self.url, f"{answer.status_code}: {_told(answer)}")


def _told(answer: requests.Response) -> str:
    """Returns what an answer says in words, which may come from a proxy."""
    try:
        told = answer.json()
        return str(told["error"]["message"] if "error" in told else told["problem"])
    except (ValueError, LookupError, TypeError):
        return answer.reason or "no reason was told"
