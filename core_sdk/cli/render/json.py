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
    print_elements(map(strict_json, values))


def print_elements(texts: Iterable[str]) -> None:
    """Prints a list, like `print_list`, of elements that are JSON already."""
    remaining = iter(texts)
    first = next(remaining, None)
    if first is None:
        print("[]")
        return
    sys.stdout.write(f"[\n{first}")
    sys.stdout.writelines(f",\n{text}" for text in remaining)
    print("\n]")
