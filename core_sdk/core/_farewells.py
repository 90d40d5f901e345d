"""Tells the chief how each rank's script ends, so that the failure of one rank fails the trial.

This is no collective: a rank that has failed cannot take part, and a rank that has ended well need not wait.
"""

from __future__ import annotations

import threading
import time

import msgspec

from core_sdk._distributed import Channel, RankFailure
from core_sdk._ground.decoding import msgpack_decoder
from core_sdk.errors import ChannelError, RankFailedError, RankLeftError

_TOPIC = "farewell"
_PATIENCE_S = 5.0
_LOOK_INTERVAL_S = 0.1


class Farewell(msgspec.Struct, frozen=True):
    """A rank's last message; without a failure the rank has ended well."""

    failure: RankFailure | None = None
    is_consequence: bool = False
    """Whether the failure of another rank has caused this one."""


class Farewells:
    """The messages of one rank about how the ranks end."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._heard: dict[int, Farewell] = {}
        self._news = threading.Condition()
        channel.listen(_TOPIC, self._hear)

    def say(self, error: BaseException | None) -> None:
        """Tells the chief how this rank ends. Called on every rank except the chief."""
        self._channel.tell_chief(_TOPIC, msgspec.msgpack.encode(_farewell(self._channel.rank, error)))

    def await_all(self) -> None:
        """Waits a few seconds at most until every other rank has said how it ends, or one has failed (chief only).

        The chief leaves the group first, so that a rank that still calls a collective fails while the chief listens.
        """
        self._channel.leave()
        deadline = time.monotonic() + _PATIENCE_S
        with self._news:
            while self._is_incomplete() and time.monotonic() < deadline:
                self._news.wait(_LOOK_INTERVAL_S)

    def failure(self) -> ChannelError | None:
        """Returns the error of the other rank that failed first, or None, without waiting (chief only)."""
        try:
            self._channel.check()
        except RankLeftError:
            pass  # it has ended well
        except ChannelError as error:
            return error
        failures = (
            RankFailedError(rank, said.failure.error_text, said.failure.traceback_text)
            for rank, said in list(self._heard.items())
            if said.failure is not None and not said.is_consequence
        )
        return next(failures, None)

    def _is_incomplete(self) -> bool:
        return len(self._heard) < self._channel.size - 1 and self.failure() is None

    def _hear(self, rank: int, content: bytes) -> None:
        with self._news:
            self._heard[rank] = msgpack_decoder(Farewell)(content)
            self._news.notify_all()


def _farewell(rank: int, error: BaseException | None) -> Farewell:
    if error is None:
        return Farewell()
    # If another rank ended well and left, the failure is this rank's own.
    is_consequence = isinstance(error, ChannelError) and not isinstance(error, RankLeftError)
    return Farewell(RankFailure.of(rank, error), is_consequence)
