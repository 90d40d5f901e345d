"""Which command runs a test, and how long it took: the list `tests/times.txt`.

A line has a set, seconds, and the name of a folder, a file, a test or a case of one; `*` stands for anything. The line
of a file counts more than its folder's, and of the lines of one file the last that matches a test decides:

- `quick`: `make test-quick` and `make test` run it. It starts no process and no server, which a guard holds.
- `test`: `make test` runs it. So it is with all tests that no line names.
- `integrations`: `make test-integrations` runs it. A test that needs a part of `parts.py` is in this set by itself.
- `slow`: only `make test-all` runs it. It takes longer than a minute, or ten seconds and has a shorter sibling.

The seconds are the sum of all tests that the line decides about, or `-` before they are measured. Each run writes the
seconds of each test to `build/test-times.txt`, the longest first; `make times` takes them over into the list.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

SETS = ("quick", "test", "integrations", "slow")
ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "times.txt"
LAST_RUNS = ROOT / "build" / "test-times.txt"
# A test of `make test` that takes longer has a line; one that takes longer than the second should be slow.
LISTED_S = 5.0
SLOW_S = 60.0
COLLECTED = pytest.StashKey[list[str]]()
"""The names of all tests that a run has collected, before it has chosen."""


@dataclass(frozen=True, order=True)
class Line:
    """The set of the tests that have this name."""

    path: str
    test: str  # "" for all of the path
    set: str
    seconds: float | None = None

    @property
    def name(self) -> str:
        return f"{self.path}::{self.test}" if self.test else self.path

    def matches(self, test: str) -> bool:
        pattern = re.escape(self.test).replace(r"\*", ".*") + ("" if "[" in self.test else r"(\[.*)?")
        return not self.test or re.fullmatch(pattern, test, re.DOTALL) is not None


def parse(text: str) -> list[Line]:
    """Returns the lines of a list."""
    lines = []
    for row in filter(None, text.split("\n")):
        which, seconds, name = row.split(maxsplit=2)
        assert which in SETS, f"{row}: the sets are {SETS}"
        path, _, test = name.partition("::")
        lines.append(Line(path, test, which, None if seconds == "-" else float(seconds)))
    return lines


def render(lines: Iterable[Line]) -> str:
    """Returns the text of a list, in order."""
    rows = (
        f"{each.set:12} {'-' if each.seconds is None else format(each.seconds, '.1f'):>7} {each.name}"
        for each in sorted(lines)
    )
    return "".join(row + "\n" for row in rows)


class Choice:
    """Tells the set of each test."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._lines: defaultdict[str, list[Line]] = defaultdict(list)
        for line in lines:
            self._lines[line.path].append(line)

    def set_of(self, name: str) -> str:
        """Returns the set of the test with this name, which begins below `tests/`."""
        line = self.line_of(name)
        return line.set if line else "test"

    def sets_of(self, name: str) -> set[str]:
        """Returns the sets of the cases of the test with this name."""
        path, _, test = name.partition("::")
        return {self.set_of(name)} | {
            line.set for line in self._lines.get(path, ()) if line.test.startswith(f"{test}[")
        }

    def line_of(self, name: str) -> Line | None:
        """Returns the line that decides about a test, if one names it."""
        path, _, test = name.partition("::")
        lines = (line for each in _upwards(path) for line in reversed(self._lines.get(each, ())))
        return next((line for line in lines if line.matches(test)), None)

    def has_quick(self, path: str) -> bool:
        """Returns whether a file may have quick tests."""
        return any(line.set == "quick" for each in _upwards(path) for line in self._lines.get(each, ()))

    def unknown(self, names: Iterable[str]) -> list[str]:
        """Returns the lines of which these tests, which are all of some files, show that they match nothing."""
        tests = defaultdict(list)
        for name in names:
            path, _, test = name.partition("::")
            tests[path].append(test)
        lines = (line for path in tests for line in self._lines.get(path, ()))
        return [line.name for line in lines if not any(map(line.matches, tests[line.path]))]


def _upwards(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition("/")[0]


def read_choice() -> Choice:
    """Returns the choice that the list makes."""
    return Choice(parse(LIST.read_text()))


class Stopwatch:
    """The plugin that keeps how long each test of this run took, also if several processes run them."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._ran: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        if report.when == "call" and not report.skipped:
            self._ran.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        if self._ran:
            took = {name: self._seconds[name] for name in self._ran}
            rows = sorted((read_last_runs() | took).items(), key=lambda each: -each[1])
            LAST_RUNS.parent.mkdir(exist_ok=True)
            LAST_RUNS.write_text("".join(f"{seconds:8.2f} {name}\n" for name, seconds in rows))


def read_last_runs() -> dict[str, float]:
    """Returns the seconds that each test took when it was last run in this checkout."""
    rows = LAST_RUNS.read_text().split("\n") if LAST_RUNS.exists() else []
    return {name: float(seconds) for seconds, name in (row.split(maxsplit=1) for row in filter(None, rows))}


def refresh(lines: Sequence[Line], took: Mapping[str, float]) -> list[Line]:
    """Returns the list with these seconds, and with a line for each long test of `make test`."""
    choice = Choice(lines)
    seconds: defaultdict[Line, float] = defaultdict(float)
    for name, each in took.items():
        path, _, test = name.partition("::")
        seconds[choice.line_of(name) or Line(path, test.partition("[")[0], "test")] += each
    measured = [replace(line, seconds=seconds.get(line, line.seconds)) for line in {*lines, *seconds}]
    return [line for line in measured if (line.seconds or 0.0) >= LISTED_S or _decides(line, lines)]


def _decides(line: Line, lines: Sequence[Line]) -> bool:
    """Returns whether the tests of this line would be in another set without it."""
    return Choice(each for each in lines if each.name != line.name).set_of(line.name) != line.set


def main() -> None:
    took = {name.removeprefix("tests/"): seconds for name, seconds in read_last_runs().items()}
    LIST.write_text(render(refresh(parse(LIST.read_text()), took)))
    choice = read_choice()
    for name, seconds in took.items():
        if seconds > SLOW_S and choice.set_of(name) != "slow":
            print(f"{name} took {seconds:.0f} s: make it shorter, or give it to the set `slow`")


if __name__ == "__main__":
    main()
