"""Finds tries that are like a new one, before it costs anything. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from core_sdk._ground.records import CodeRecord
from core_sdk._home.finding.facts import flat_hparams
from core_sdk._home.finding.tries import Try

Likeness = Literal["equal", "same change", "like words"]
"""How a try is like another one. `equal`: the same code, hyperparameters and command. `same change`: the same lines
were changed, and the same hyperparameters. `like words`: its hypothesis has nearly the same words, and the same
numbers."""

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?:e[+-]?\d+)?")
_WORD = re.compile(r"[^\W\d_]+")
_EMPTY_WORDS = frozenset({"a", "an", "and", "as", "by", "for", "in", "is", "it", "of", "on", "or", "the", "to", "with"})
_MOST_DIFFERENT = 0.2


@dataclass(frozen=True)
class NewTry:
    """A try that nobody has begun yet."""

    hypothesis: str
    code: CodeRecord
    command: tuple[str, ...]
    hparams: Mapping[str, Any]


def most_alike(
    candidate: NewTry, tries: Iterable[Try], commands: Mapping[int, tuple[str, ...]]
) -> tuple[Likeness, Try] | None:
    """Returns the try that is most like the candidate; None if none is like it. Of several the newest.

    `commands` has the command, as it was given, of each try that has the same code or the same change.
    """
    ranks: list[tuple[int, int, Likeness, Try]] = []
    for one in tries:
        if (found := likeness(candidate, one, commands.get(one.try_id, ()))) is not None:
            ranks.append((("like words", "same change", "equal").index(found), one.try_id, found, one))
    if not ranks:
        return None
    _, _, found, one = max(ranks, key=lambda each: each[:2])
    return found, one


def likeness(candidate: NewTry, one: Try, command: tuple[str, ...]) -> Likeness | None:
    code, hparams = one.row.code, flat_hparams(one.row.hparams)
    given = flat_hparams(dict(candidate.hparams))
    have_same_values = all(name in hparams and hparams[name] == value for name, value in given.items())
    is_same_run = have_same_values and command == candidate.command
    if (
        code is not None
        and is_same_run
        and (code.sha256, code.directory)
        == (
            candidate.code.sha256,
            candidate.code.directory,
        )
    ):
        return "equal"
    if code is not None and is_same_run and code.change and code.change == candidate.code.change:
        return "same change"
    return "like words" if have_like_words(candidate.hypothesis, one.row.hypothesis) else None


def have_like_words(text: str, other: str) -> bool:
    """Returns whether two texts have the same numbers, and nearly the same words in any order."""
    numbers, of_other = (sorted(_NUMBER.findall(each.casefold())) for each in (text, other))
    words, other_words = _words(text), _words(other)
    if numbers != of_other or not (words and other_words):
        return False
    return len(words ^ other_words) <= _MOST_DIFFERENT * len(words | other_words)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(_NUMBER.sub(" ", text.casefold()))) - _EMPTY_WORDS
