"""Lengths of a training."""

from __future__ import annotations

from typing import Literal

import msgspec

Unit = Literal["batches", "records", "epochs"]


class Length(msgspec.Struct, frozen=True):
    """How long a training is; without a unit the script decides what it counts."""

    value: int
    unit: Unit | None = None
