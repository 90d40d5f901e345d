"""Searches by a regular expression, which stands between slashes."""

from __future__ import annotations

from collections.abc import Sequence

from core_sdk._home.finding import expressions
from core_sdk._interfaces.server.errors import RequestError


def expression_in(search: str) -> str:
    """Returns the regular expression of a search, which stands between slashes; empty if it is plain text."""
    return search[1:-1] if len(search) > 2 and search[0] == search[-1] == "/" else ""


def matching(expression: str, texts: Sequence[str]) -> list[int]:
    """Returns what `expressions.matching` does. Raises `RequestError` for its errors."""
    try:
        return expressions.matching(expression, texts)
    except TimeoutError as error:
        advice = "Repetitions within repetitions make one slow."
        raise RequestError(400, "bad_expression", str(error), advice) from None
    except ValueError as error:
        raise RequestError(400, "bad_expression", str(error)) from None
