"""Lengths of a training, and of the periods in it."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

Unit = Literal["batches", "records", "epochs"]


class Length(msgspec.Struct, frozen=True):
    """The length of a training, written `{epochs: 20}`, or `20` if the script decides what it counts."""

    minimum: ClassVar[int] = 1

    value: int
    unit: Unit | None = None


class Period(Length, frozen=True):
    """The period after which something is done again in a training. With 0 it is done once, at the end."""

    minimum: ClassVar[int] = 0
