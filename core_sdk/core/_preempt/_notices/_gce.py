"""Notices of Google Compute Engine that it will preempt a machine, or end it for maintenance."""

from __future__ import annotations

from urllib.parse import quote

from core_sdk.core._preempt._notices._server import Answer, MetadataServer, NoAnswer

_ROOT = "/computeMetadata/v1/instance"
_FLAVOR = {"Metadata-Flavor": "Google"}
_UNKNOWN_ETAG = "0"
# The server holds a request for this long, and answers at once when there is news. If the server dies meanwhile, this
# much of a 30 s notice is lost.
_HANG_S = 8
_ANSWER_S = 2.0

_PREEMPTED = {"TRUE": "GCE preemption", "FALSE": None}
_MAINTENANCE = {
    "TERMINATE_ON_HOST_MAINTENANCE": "GCE host maintenance",
    "MIGRATE_ON_HOST_MAINTENANCE": None,  # the machine goes on running elsewhere
    "NONE": None,
}


class GoogleNotices:
    """Asks without pauses, since the server itself waits for news."""

    interval_s = 0.0

    def __init__(self, server: MetadataServer) -> None:
        self._server = server
        self._etag = _UNKNOWN_ETAG

    def look(self) -> str | None:
        """Returns what is about to end the machine, or None. Raises `NoAnswer`."""
        return self._maintenance() or self._preemption()

    def _maintenance(self) -> str | None:
        answer = self._ask("/maintenance-event", _ANSWER_S)
        return _meaning(answer, _MAINTENANCE)

    def _preemption(self) -> str | None:
        waiting = f"?wait_for_change=true&timeout_sec={_HANG_S}&last_etag={quote(self._etag, safe='')}"
        timeout_s = _ANSWER_S if self._etag == _UNKNOWN_ETAG else _HANG_S + _ANSWER_S
        self._etag, before = _UNKNOWN_ETAG, self._etag
        answer = self._ask(f"/preempted{waiting}", timeout_s)
        meaning = _meaning(answer, _PREEMPTED)
        self._etag = answer.headers.get("etag") or before
        return meaning

    def _ask(self, path: str, timeout_s: float) -> Answer:
        answer = self._server.ask("GET", _ROOT + path, _FLAVOR, timeout_s)
        if answer.status != 200:
            raise NoAnswer(f"HTTP status {answer.status}")
        if answer.headers.get("metadata-flavor") != "Google":
            raise NoAnswer("the answer is not from Google's server: it lacks Metadata-Flavor: Google")
        return answer


def _meaning(answer: Answer, meanings: dict[str, str | None]) -> str | None:
    if answer.text not in meanings:
        raise NoAnswer(f"the answer is {answer.text[:40]!r}, where one of {', '.join(meanings)} is expected")
    return meanings[answer.text]
