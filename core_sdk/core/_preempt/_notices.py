"""Notices that a cloud gives before it ends a machine; each is a stop of all ranks.

On each node a thread of the local chief asks the machine's metadata server. A failure of the server costs a warning,
and does not disturb the training.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import requests

from core_sdk.core._preempt._clouds import Cloud

logger = logging.getLogger("core_sdk.preempt")

_CONNECT_S = 3.0
_ANSWER_S = 2.0
# Google's server holds a question for this long, and answers at once when there is news.
_HANG_S = 4
_FIRST_PAUSE_S = 0.25
# Half of the shortest notice, so that a server that works again is heard in time.
_LONGEST_PAUSE_S = 15.0


class NoticeListener(threading.Thread):
    """Asks the servers of the clouds in turn, until one tells what ends the machine: calls `on_notice` with that."""

    def __init__(self, clouds: Sequence[Cloud], on_notice: Callable[[str], None]) -> None:
        super().__init__(name="core-sdk-notices", daemon=True)
        self._servers = [_KINDS[cloud.name](cloud) for cloud in clouds]
        self._on_notice = on_notice
        self._closing = threading.Event()
        self.start()

    def close(self) -> None:
        """Ends the thread once the question that is under way is over, and does not wait for it."""
        self._closing.set()

    def run(self) -> None:
        while not self._closing.is_set():
            server = min(self._servers, key=lambda server: server.next_s)
            if self._closing.wait(max(0.0, server.next_s - time.monotonic())):
                return
            server.next_s = time.monotonic() + server.interval_s
            if (notice := self._ask(server)) is not None and not self._closing.is_set():
                logger.info("notice of the machine's end: %s", notice)
                self._on_notice(f"{notice} of {socket.gethostname()}")
                return

    def _ask(self, server: _MetadataServer) -> str | None:
        try:
            notice = server.look()
        except (OSError, ValueError) as error:  # OSError: also the errors of requests
            if not server.pause_s and not self._closing.is_set():
                logger.warning(
                    "notices of %s are not heard, and are asked for again later; training goes on: %.200s",
                    server.cloud.name,
                    error,
                )
            server.pause_s = next_pause_s(server.pause_s)
            server.next_s = time.monotonic() + server.pause_s
            return None
        if server.pause_s:
            logger.info("notices of %s are heard again", server.cloud.name)
        server.pause_s = 0.0
        return notice


def next_pause_s(pause_s: float) -> float:
    """Returns the pause after another failure: twice the last one, up to the longest."""
    return min(max(2 * pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)


class _MetadataServer(ABC):
    """A metadata server, as one thread asks it."""

    interval_s: ClassVar[float]
    """The time from one question to the next."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.next_s = 0.0
        """The time of the next question, by `time.monotonic()`."""
        self.pause_s = 0.0
        """The pause after the last failure; 0 while the server answers."""
        self._session = requests.Session()
        self._session.trust_env = False  # a proxy would ask its own machine

    @abstractmethod
    def look(self) -> str | None:
        """Returns what is about to end the machine, or None. Raises `OSError` or `ValueError` for any other answer."""

    def _answer(
        self, method: str, path: str, headers: dict[str, str], params: dict[str, str | int] | None = None
    ) -> requests.Response:
        """Returns an answer with status 200 or 404."""
        answer = self._session.request(
            method,
            f"{self.cloud.url}{path}",
            params=params,
            headers={"Connection": "close", **headers},
            timeout=(_CONNECT_S, _HANG_S + _ANSWER_S if params else _ANSWER_S),
            allow_redirects=False,
        )
        if answer.status_code not in (200, 404):
            raise ValueError(f"{self.cloud.url} answers with status {answer.status_code}")
        return answer


class _Google(_MetadataServer):
    """Compute Engine, which preempts machines, or ends them for maintenance. The server itself waits for news."""

    interval_s = 0.5  # for a server that answers at once
    _MAINTENANCE: ClassVar = {
        "TERMINATE_ON_HOST_MAINTENANCE": "GCE host maintenance",
        "MIGRATE_ON_HOST_MAINTENANCE": None,  # the machine goes on running elsewhere
        "NONE": None,
    }
    _PREEMPTED: ClassVar = {"TRUE": "GCE preemption", "FALSE": None}

    def __init__(self, cloud: Cloud) -> None:
        super().__init__(cloud)
        self._etag = "0"

    def look(self) -> str | None:
        maintenance, _ = self._meaning(self._MAINTENANCE, "maintenance-event")
        if maintenance is not None:
            return maintenance
        news: dict[str, str | int] = {"wait_for_change": "true", "timeout_sec": _HANG_S, "last_etag": self._etag}
        preempted, self._etag = self._meaning(self._PREEMPTED, "preempted", news)
        return preempted

    def _meaning(
        self, meanings: dict[str, str | None], name: str, params: dict[str, str | int] | None = None
    ) -> tuple[str | None, str]:
        """Returns the meaning of an answer, and its ETag."""
        answer = self._answer("GET", f"/computeMetadata/v1/instance/{name}", {"Metadata-Flavor": "Google"}, params)
        text = answer.text.strip()
        if answer.headers.get("Metadata-Flavor") != "Google" or text not in meanings:
            raise ValueError(f"{self.cloud.url} does not answer as Google's server does")
        return meanings[text], answer.headers.get("ETag", "0")


class _Amazon(_MetadataServer):
    """EC2, which interrupts Spot machines. It is asked by version 2 of its metadata service."""

    interval_s = 5.0  # as Amazon advises

    def look(self) -> str | None:
        ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
        token = {"X-aws-ec2-metadata-token": self._answer("PUT", "/latest/api/token", ttl).text}
        answer = self._answer("GET", "/latest/meta-data/spot/instance-action", token)
        if answer.status_code == 404:
            return None
        told = answer.json()
        action = told.get("action") if isinstance(told, dict) else None
        if action not in ("terminate", "stop", "hibernate"):
            raise ValueError(f"{self.cloud.url} answers with something else than an interruption")
        return f"EC2 spot interruption ({action})"


_KINDS: dict[str, type[_MetadataServer]] = {"gce": _Google, "ec2": _Amazon}
