"""The tests that passed only at their second try, alone, as `make test` names them at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

KNOWN: Mapping[str, str] = {}
"""Tests that depend on the load of the machine, each with the reason why it cannot wait for a condition."""


def describe(passed: Sequence[str], known: Mapping[str, str] = KNOWN) -> list[str]:
    """Returns the lines that name the tests which have passed; none if there is none."""
    if not passed:
        return []
    return [
        "passed only at the second try, alone:",
        *(
            f"  {name}: {known.get(name, 'let it wait for a condition, or give tests/second_tries.py the reason')}"
            for name in passed
        ),
    ]
