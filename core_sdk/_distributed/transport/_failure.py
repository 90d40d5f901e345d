"""The failure of a rank, as the others are told of it.

It stands apart from `_encoding`, so that a training on one rank does not import pickle.
"""

from __future__ import annotations

import traceback

import msgspec

_MAX_TEXT_CHARS = 16_384


class RankFailure(msgspec.Struct, frozen=True, tag=True):
    """An error of one rank, as text for the other ranks."""

    rank: int
    error_text: str
    traceback_text: str = ""

    @classmethod
    def of(cls, rank: int, error: BaseException) -> RankFailure:
        error_text = "".join(traceback.format_exception_only(error)).strip()
        traceback_text = "".join(traceback.format_exception(error))
        return cls(rank, _printable(error_text), _printable(traceback_text))


def _printable(text: str) -> str:
    """Returns the text as valid UTF-8. A long text loses its beginning, which says less than its end."""
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= _MAX_TEXT_CHARS else "…" + text[-_MAX_TEXT_CHARS:]
