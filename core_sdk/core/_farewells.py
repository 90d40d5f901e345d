"""How the ranks' scripts end: each tells the chief, which speaks for all, so that one rank's failure is the trial's.

No collective: a rank that fails cannot be waited for, and one that ends well need not wait.
"""

from __future__ import annotations

import threading
import time

import msgspec

from core_sdk.distributed import Channel, Failure
from core_sdk.errors import ChannelError, RankFailedError, RankLeftError

_TOPIC = "farewell"
_PATIENCE_S = 5.0
_LOOK_INTERVAL_S = 0.1


class Farewell(msgspec.Struct, frozen=True):
    """A rank's last word; without a failure it has ended well."""

    failure: Failure | None = None
    is_consequence: bool = False
    """The rank was drawn in by another's failure."""


class Farewells:
    """One rank's part."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._heard: dict[int, Farewell] = {}
        self._news = threading.Condition()
        channel.listen(_TOPIC, self._hear)

    def say(self, error: BaseException | None) -> None:
        """On any rank but the chief."""
        self._channel.tell_chief(_TOPIC, msgspec.msgpack.encode(_farewell(self._channel.rank, error)))

    def await_all(self) -> None:
        """On the chief: waits until every other rank has said how it ends, or one has failed; a few seconds at most.

        The chief leaves the group first: a rank that still calls it then fails now, not when nobody asks any more.
        """
        self._channel.leave()
        deadline = time.monotonic() + _PATIENCE_S
        with self._news:
            while self._is_incomplete() and time.monotonic() < deadline:
                self._news.wait(_LOOK_INTERVAL_S)

    def failure(self) -> ChannelError | None:
        """On the chief, without waiting: what has become of the other rank that failed first."""
        try:
            self._channel.check()
        except RankLeftError:
            pass  # in peace
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
            self._heard[rank] = msgspec.msgpack.decode(content, type=Farewell)
            self._news.notify_all()


def _farewell(rank: int, error: BaseException | None) -> Farewell:
    if error is None:
        return Farewell()
    # A rank that others leave alone has been drawn in by nobody's failure.
    is_consequence = isinstance(error, ChannelError) and not isinstance(error, RankLeftError)
    return Farewell(Failure.of(rank, error), is_consequence)
