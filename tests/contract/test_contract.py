"""Each promise of docs/contract.md is held by tests, which are marked with its name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from times import read_choice

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "contract.md").read_text()
CHOICE = read_choice()


def test_each_promise_is_held_by_a_test_that_is_not_slow() -> None:
    """The tests that continuous integration runs hold all promises, and no mark names another one."""
    marked = [test for path in (REPOSITORY / "tests").rglob("test_*.py") for test in marked_tests(path)]

    assert {name for names, _ in marked for name in names} == set(promises())
    assert {name for names, is_slow in marked if not is_slow for name in names} == set(promises())


def test_the_page_cites_promises_that_stand_on_it() -> None:
    """Each promise has a name of its own, and each name that the page cites names a promise."""
    assert len(promises()) == len(set(promises()))
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= set(promises())


def promises() -> list[str]:
    """Returns the names of all promises on the page, in order."""
    return re.findall(r'^- <a id="([^"]+)">\*\*\1\*\*</a>: ', PAGE, re.MULTILINE)


def marked_tests(path: Path) -> Iterator[tuple[list[str], bool]]:
    """Yields the promises of each marked test of this file, and whether the whole test is slow."""
    file = path.relative_to(REPOSITORY / "tests").as_posix()
    for function in path.read_text().split("\n\n\n"):
        marks, _, rest = function.partition("\ndef ")
        names = [name for names in re.findall(r"^@promise\((.*)\)$", marks, re.MULTILINE) for name in names.split(", ")]
        if names:
            yield [name.strip('"') for name in names], CHOICE.sets_of(f"{file}::{rest.partition('(')[0]}") == {"slow"}
