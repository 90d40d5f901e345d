"""Threads that wait for notices, one for each cloud."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from core_sdk.core._preempt._notices._clouds import Cloud
from core_sdk.core._preempt._notices._ec2 import AmazonNotices
from core_sdk.core._preempt._notices._gce import GoogleNotices
from core_sdk.core._preempt._notices._server import MetadataServer, NoAnswer

logger = logging.getLogger("core_sdk.preempt")

# For a server that should wait for news, and answers at once.
_LEAST_INTERVAL_S = 0.5
_FIRST_PAUSE_S = 0.25
# Half of the shortest notice, so that a server that works again is heard in time.
_LONGEST_PAUSE_S = 15.0
# Looking up a name may take longer, and cannot be interrupted.
_JOIN_S = 1.0


class Notices(Protocol):
    """The way to ask one cloud."""

    interval_s: float
    """The time from one request to the next."""

    def look(self) -> str | None: ...


class NoticeListeners:
    """Calls `on_notice` with what ends the machine, from any of its threads."""

    def __init__(self, clouds: Sequence[Cloud], on_notice: Callable[[str], None]) -> None:
        self._listeners = [_Listener(cloud, on_notice) for cloud in clouds]
        for listener in self._listeners:
            listener.start()

    def close(self) -> None:
        for listener in self._listeners:
            listener.abort()
        for listener in self._listeners:
            listener.join(_JOIN_S)


class _Listener(threading.Thread):
    def __init__(self, cloud: Cloud, on_notice: Callable[[str], None]) -> None:
        super().__init__(name=f"core-sdk-notices-{cloud.name}", daemon=True)
        self._cloud = cloud
        self._server = MetadataServer(cloud)
        self._notices = _notices(cloud, self._server)
        self._on_notice = on_notice
        self._closing = threading.Event()
        self._pause_s = 0.0
        """The pause after the last failure; 0 while the server answers."""

    def abort(self) -> None:
        self._closing.set()
        self._server.abort()

    def run(self) -> None:
        while not self._closing.is_set():
            begun_at = time.monotonic()
            notice = self._look()
            if notice is not None and not self._closing.is_set():
                logger.info("notice of the machine's end: %s", notice)
                self._on_notice(f"{notice} of {socket.gethostname()}")
                return
            interval_s = self._pause_s or max(self._notices.interval_s, _LEAST_INTERVAL_S)
            self._closing.wait(max(self._pause_s, begun_at + interval_s - time.monotonic()))

    def _look(self) -> str | None:
        try:
            notice = self._notices.look()
        except NoAnswer as error:
            self._count_failure(error)
            return None
        if self._pause_s:
            logger.info("notices of %s are heard again", self._cloud.name)
        self._pause_s = 0.0
        return notice

    def _count_failure(self, error: NoAnswer) -> None:
        if self._closing.is_set():
            return
        if not self._pause_s:
            logger.warning(
                "notices of %s are not heard, and are asked for again later; training goes on. %s port %d: %s",
                self._cloud.name,
                self._cloud.host,
                self._cloud.port,
                error,
            )
        self._pause_s = next_pause_s(self._pause_s)


def next_pause_s(pause_s: float) -> float:
    """Returns the pause after another failure: twice the last one, up to the longest."""
    return min(max(2 * pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)


def _notices(cloud: Cloud, server: MetadataServer) -> Notices:
    match cloud.name:
        case "gce":
            return GoogleNotices(server)
        case "ec2":
            return AmazonNotices(server)
