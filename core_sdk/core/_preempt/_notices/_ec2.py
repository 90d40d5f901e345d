"""Notices of Amazon EC2 that it will interrupt a Spot machine, from version 2 of its metadata service."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Literal

import msgspec

from core_sdk.core._preempt._notices._server import Answer, MetadataServer, NoAnswer

_ANSWER_S = 2.0
_TOKEN_S = 3600
_RENEWED_S = 300.0
_TOKEN = re.compile(r"[!-~]{1,1024}")
_NOT_FOUND = 404
_UNAUTHORIZED = 401


class _Interruption(msgspec.Struct):
    action: Literal["terminate", "stop", "hibernate"]
    time: str


class AmazonNotices:
    """Asks every five seconds, as Amazon advises."""

    interval_s = 5.0

    def __init__(self, server: MetadataServer, clock: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._clock = clock
        self._token: str | None = None
        self._token_ends_at = 0.0

    def look(self) -> str | None:
        """Returns what is about to end the machine, or None. Raises `NoAnswer`."""
        answer = self._interruption()
        if answer.status == _UNAUTHORIZED:
            self._token = None
            answer = self._interruption()
        if answer.status == _NOT_FOUND:
            return None
        _expect_ok(answer)
        return f"EC2 spot interruption ({_action(answer)})"

    def _interruption(self) -> Answer:
        headers = {"X-aws-ec2-metadata-token": self._current_token()}
        return self._server.ask("GET", "/latest/meta-data/spot/instance-action", headers, _ANSWER_S)

    def _current_token(self) -> str:
        if self._token is None or self._clock() > self._token_ends_at - _RENEWED_S:
            begun_at = self._clock()
            headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_S)}
            answer = self._server.ask("PUT", "/latest/api/token", headers, _ANSWER_S)
            _expect_ok(answer)
            if not _TOKEN.fullmatch(answer.text):
                raise NoAnswer("the answer is not a token")
            self._token, self._token_ends_at = answer.text, begun_at + _TOKEN_S
        return self._token


def _expect_ok(answer: Answer) -> None:
    if answer.status != 200:
        raise NoAnswer(f"HTTP status {answer.status}")


def _action(answer: Answer) -> str:
    try:
        return msgspec.json.decode(answer.text, type=_Interruption).action
    except msgspec.DecodeError as error:
        raise NoAnswer(f"the answer is not a notice of an interruption: {error}") from error
