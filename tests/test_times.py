"""The list of tests with their times chooses what each command runs."""

from __future__ import annotations

import os
import re

import pytest
from in_process import guard
from times import COLLECTED, LIST, Choice, parse, refresh, render

LINES = parse(
    """\
quick            -  rules
slow          60.0  rules/test_a.py::test_grid
integrations   8.0  rules/test_a.py::test_grid[*-one]
test             -  rules/test_a.py::test_serves
integrations     -  rules/test_b.py
"""
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rules/test_a.py::test_pure", "quick"),
        ("rules/test_a.py::test_serves", "test"),
        ("rules/test_a.py::test_serves_all", "quick"),
        ("rules/test_a.py::test_grid[1-one]", "integrations"),
        ("rules/test_a.py::test_grid[1-two]", "slow"),
        ("rules/test_b.py::test_any[case]", "integrations"),
        ("other/test_c.py::test_any", "test"),
    ],
)
def test_the_most_specific_line_decides(name: str, expected: str) -> None:
    """A case counts more than its test, a test more than its file, and a file more than its folder."""
    assert Choice(LINES).set_of(name) == expected


def test_the_list_takes_over_what_the_tests_took() -> None:
    """A line gets the sum of its tests, and a long test of `make test` gets a line."""
    took = {
        "rules/test_a.py::test_grid[1-two]": 70.0,
        "rules/test_a.py::test_grid[2-two]": 20.0,
        "other/test_c.py::test_long[1]": 4.0,
        "other/test_c.py::test_long[2]": 4.0,
        "other/test_c.py::test_short": 0.1,
    }

    refreshed = refresh(LINES, took)

    assert render(refreshed).splitlines() == [
        "test             8.0 other/test_c.py::test_long",
        "quick              - rules",
        "slow            90.0 rules/test_a.py::test_grid",
        "integrations     8.0 rules/test_a.py::test_grid[*-one]",
        "test               - rules/test_a.py::test_serves",
        "integrations       - rules/test_b.py",
    ]
    assert sorted(parse(render(refreshed))) == sorted(refreshed)


def test_each_line_of_the_list_names_a_test(request: pytest.FixtureRequest) -> None:
    """The list is in order, and names no test that has gone; known of the files that this run has collected."""
    text = LIST.read_text()
    lines = parse(text)
    is_part = any("::" in argument for argument in request.config.args)

    assert render(lines) == text, "`make times` puts it in order"
    assert [line.path for line in lines if not (LIST.parent / line.path).exists()] == []
    collected = request.config.stash[COLLECTED]
    assert is_part or not Choice(lines).unknown(collected)


def test_the_list_alone_chooses() -> None:
    """No test file marks a test with the set that the list gives it."""
    mark = re.compile(r"mark\.(slow|quick|integration)\b")

    assert [path.name for path in LIST.parent.rglob("*.py") if mark.search(path.read_text())] == []


def test_a_quick_test_that_starts_a_process_fails() -> None:
    """The guard sees a process that a test starts."""
    with pytest.raises(pytest.fail.Exception, match="posix_spawn"), guard():
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
