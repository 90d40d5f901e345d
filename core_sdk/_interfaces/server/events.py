"""Server-sent events: tells each open page what has changed, soon after it was recorded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from core_sdk._interfaces.server.errors import RequestError
from core_sdk._interfaces.server.feed import Change
from core_sdk._interfaces.server.shared_view import SharedView

logger = logging.getLogger("core_sdk.server")

_HEARTBEAT_S = 15.0
_FAILURE_PAUSE_S = 5.0


class Events:
    """The streams of events to open pages. One look at the records serves all; without open pages there is none."""

    def __init__(self, shared: SharedView, max_streams: int) -> None:
        self._shared = shared
        self._max_streams = max_streams
        self._news = asyncio.Condition()
        self._num_streams = 0
        self._looking: asyncio.Task[None] | None = None
        self._is_ending = False

    def answer(self, last_id: str | None) -> StreamingResponse:
        """Returns a stream of events, from `last_id` on if given. Raises `RequestError` if too many pages are open."""
        if self._num_streams >= self._max_streams:
            raise RequestError(
                503, "too_many_pages", f"{self._max_streams} pages are open already", "Close some of them."
            )
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._stream(last_id), media_type="text/event-stream", headers=headers)

    async def end(self) -> None:
        """Ends all streams. The pages then connect again, and find that the server is gone."""
        self._is_ending = True
        async with self._news:
            self._news.notify_all()

    async def _stream(self, last_id: str | None) -> AsyncIterator[bytes]:
        self._num_streams += 1
        try:
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._look())
            await run_in_threadpool(self._shared.look)  # the stream has what is recorded after this look
            sent = self._shared.feed.last_id if last_id is None else last_id
            # This is sent at once, so that the page knows that it is connected, and has an id from which to go on.
            yield b"retry: 1000\n" + _encoded("hello", sent if last_id is None else None, Change())
            while not self._is_ending:
                for event_id, change in self._shared.feed.since(sent):
                    yield _encoded("change", event_id, change)
                    sent = event_id
                if not await self._has_news(sent) and not self._is_ending:
                    yield b": still here\n\n"
        finally:
            self._num_streams -= 1

    async def _has_news(self, sent: str) -> bool:
        """Waits for an event after `sent`, and returns False if none has come for 15 seconds."""
        try:
            async with asyncio.timeout(_HEARTBEAT_S), self._news:
                await self._news.wait_for(lambda: self._is_ending or self._shared.feed.last_id != sent)
        except TimeoutError:
            return False
        return True

    async def _look(self) -> None:
        while self._num_streams > 0:
            try:
                pause_s = await run_in_threadpool(self._shared.look)
            except Exception:  # the pages that are open wait for us: we look again
                logger.exception("the records cannot be looked at; trying again in %g s", _FAILURE_PAUSE_S)
                pause_s = _FAILURE_PAUSE_S
            async with self._news:
                self._news.notify_all()
            await asyncio.sleep(pause_s)


def _encoded(kind: str, event_id: str | None, change: Change) -> bytes:
    head = f"id: {event_id}\n" if event_id is not None else ""
    return f"{head}event: {kind}\ndata: ".encode() + msgspec.json.encode(change) + b"\n\n"
