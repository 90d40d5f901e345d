"""Calls the program's callbacks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from core_sdk._ground.decoding import json_decoder
from core_sdk._ground.records import from_json
from core_sdk.train._checkpoint import Checkpoint
from core_sdk.train._configs import TrainRunContext, UserCallback
from core_sdk.train._worker.callbacks import Told

logger = logging.getLogger("core_sdk.train")

_LOOK_S = 0.05


class ReportCallbacks:
    """Calls the callbacks, until it is closed, for each report that rank 0 writes into the attempt's file."""

    def __init__(self, callbacks: Sequence[UserCallback], context: TrainRunContext, path: Path) -> None:
        self._callbacks = callbacks
        self._context = context
        self._path = path
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="core-sdk-callbacks", daemon=True)
        if callbacks:
            self._thread.start()

    def tell_failure(self, failures: dict[int, Exception]) -> None:
        self._call("after_exception", failures)

    def close(self) -> None:
        if self._callbacks:
            self._is_over.set()
            self._thread.join()
            self._path.unlink(missing_ok=True)

    def _follow(self) -> None:
        for told in self._lines():
            checkpoint = None if told.storage_id is None else Checkpoint.stored(told.storage, told.storage_id)
            self._call("after_report", [from_json(each) for each in told.metrics], checkpoint)

    def _lines(self) -> Iterator[Told]:
        offset = 0
        while True:
            is_last = self._is_over.wait(_LOOK_S)
            if self._path.exists():
                with self._path.open("rb") as file:
                    file.seek(offset)
                    lines = [line for line in file if line.endswith(b"\n")]
                offset += sum(map(len, lines))
                yield from (json_decoder(Told)(line) for line in lines)
            if is_last:
                return

    def _call(self, hook: str, *args: object) -> None:
        for callback in self._callbacks:
            try:
                getattr(callback, hook)(self._context, *args)
            except Exception:  # it is the user's, and only looks on: a training must not end by it
                logger.exception("%s has failed; the training goes on", type(callback).__name__)
