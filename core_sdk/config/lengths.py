"""Lengths of a training, and of the periods in it."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

Unit = Literal["batches", "records", "epochs"]


class Length(msgspec.Struct, frozen=True):
    """How long a training is, written `{epochs: 20}`, or `20`: then the script decides what it counts."""

    minimum: ClassVar[int] = 1

    value: int
    unit: Unit | None = None


class Period(Length, frozen=True):
    """How often something is done in a training; 0 is once, at the end."""

    minimum: ClassVar[int] = 0
