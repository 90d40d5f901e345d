"""The helpers of wandb that scripts call."""

from __future__ import annotations

import random
import string
from typing import Any

from core_sdk.compat.wandb._missing import missing

_LETTERS = string.ascii_lowercase + string.digits


def generate_id(length: int = 8) -> str:
    """Returns a new random id for a run. Seeds that the script sets do not change it."""
    return "".join(random.SystemRandom().choices(_LETTERS, k=length))


def __getattr__(name: str) -> Any:
    raise AttributeError(missing(f"wandb.util.{name}"))
