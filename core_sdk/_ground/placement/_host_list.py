"""Slurm's compressed lists of hosts, `h[1-3,07],gpu-[01-02]-x[1-2]`, and of numbers, `2(x3),1`."""

from __future__ import annotations

import itertools
import re

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_COMMA_OUTSIDE_BRACKETS = re.compile(r",(?![^\[]*\])")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)
_COUNT = re.compile(r"(\d+)(?:\(x(\d+)\))?", re.ASCII)


def expand_hosts(text: str) -> list[str]:
    """Returns the hosts, in the list's order. Raises `ValueError` for anything but a list of hosts."""
    return [host for part in _COMMA_OUTSIDE_BRACKETS.split(text) for host in _expand_part(part)]


def expand_counts(text: str) -> list[int]:
    """Returns one number per node. Raises `ValueError` for anything but a list of numbers."""
    return [count for part in text.split(",") for count in _expand_count(part)]


def _expand_part(part: str) -> list[str]:
    # Every second piece was in brackets.
    pieces = _BRACKETS.split(part)
    choices = [_expand_ranges(piece) if index % 2 else [piece] for index, piece in enumerate(pieces)]
    if not part or any("[" in piece or "]" in piece for piece in pieces[::2]):
        raise ValueError(f"{part!r} is not a host")
    return ["".join(choice) for choice in itertools.product(*choices)]


def _expand_ranges(text: str) -> list[str]:
    return [number for part in text.split(",") for number in _expand_range(part)]


def _expand_range(text: str) -> list[str]:
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a range of numbers")
    first, last = match[1], match[2] or match[1]
    if int(last) < int(first):
        raise ValueError(f"{text!r} runs backwards")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]


def _expand_count(text: str) -> list[int]:
    match = _COUNT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a count")
    return [int(match[1])] * int(match[2] or 1)
