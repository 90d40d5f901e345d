"""What comes from a host on stderr: its ranks' lines, its launcher's, and between them what it tells the head."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from core_sdk.processes.output import PrefixedLines
from launch._messages import MARK

_MAX_RECORD_BYTES = 1 << 20


class HostOutput(PrefixedLines):
    """Takes out the host's records, and adds the host to the launcher's own messages. Ranks' lines stay as they are."""

    def __init__(self, host: str, mark: str, tell: Callable[[dict[str, Any]], None]) -> None:
        super().__init__(b"")
        self._mark = mark.encode()
        self._record = re.compile(re.escape(self._mark) + rb"([^\n]*)\n")
        self._tell = tell
        self._with_host = MARK.encode() + host.encode() + b": "
        self._messages = re.compile(rb"^" + re.escape(MARK.encode()), re.MULTILINE)
        self._pending = b""

    def feed(self, chunk: bytes) -> bytes:
        text = self._record.sub(self._take, self._pending + chunk)
        start = self._start_of_record(text)
        text, self._pending = text[:start], text[start:]
        return self._messages.sub(self._with_host, super().feed(text))

    def finish(self) -> bytes:
        # The connection may have ended in the middle of a record.
        self._pending = b""
        return super().finish()

    def _take(self, match: re.Match[bytes]) -> bytes:
        self._tell(json.loads(match[1]))
        return b""

    def _start_of_record(self, text: bytes) -> int:
        """Where a record begins whose end has not come yet; the end of the text if there is none."""
        found = text.find(self._mark)
        if found >= 0 and len(text) - found < _MAX_RECORD_BYTES:
            return found
        lengths = range(min(len(self._mark), len(text)), 0, -1)
        return len(text) - next((length for length in lengths if text.endswith(self._mark[:length])), 0)
