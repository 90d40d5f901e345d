"""Prints strict JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

from core_sdk.records import plain, strict_json


def print_object(value: Any) -> None:
    print(json.dumps(plain(value), allow_nan=False, indent=2))


def print_list(values: Iterable[Any]) -> None:
    """Prints one element per line, each as soon as the iterable yields it."""
    print("[", end="")
    separator = "\n"
    for value in values:
        sys.stdout.write(separator + strict_json(value))
        separator = ",\n"
    print("\n]" if separator != "\n" else "]")
