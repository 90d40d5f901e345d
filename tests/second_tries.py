"""The tests that passed only at their second try, alone, as `make test` names them at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

KNOWN: Mapping[str, str] = {
    "tests/distributed/test_scale.py::test_a_dead_one_of_64_ranks_is_named_on_all_others[64 ranks]": (
        "its 64 ranks are threads of three processes, which join ten times as slowly beside other tests"
    ),
}
"""Tests that depend on the load of the machine, each with the reason why it cannot wait for a condition."""


def describe(passed: Sequence[str], known: Mapping[str, str] = KNOWN) -> list[str]:
    """The lines that name the tests which have passed; none if there is none."""
    if not passed:
        return []
    return [
        "passed only at the second try, alone:",
        *(
            f"  {name}: {known.get(name, 'let it wait for a condition, or give tests/second_tries.py the reason')}"
            for name in passed
        ),
    ]
