"""A run of the tests names at its end which have passed only at the second try."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from second_tries import KNOWN, describe

ROOT = Path(__file__).parent.parent


def test_each_is_named_with_its_reason() -> None:
    """A test that passed only at its second try is listed with its reason or with advice."""
    lines = describe(["tests/a.py::one", "tests/a.py::two"], {"tests/a.py::two": "it measures time"})

    assert lines == [
        "passed only at the second try, alone:",
        "  tests/a.py::one: let it wait for a condition, or give tests/second_tries.py the reason",
        "  tests/a.py::two: it measures time",
    ]
    assert describe([]) == []


def test_the_list_names_tests_that_exist() -> None:
    """The list of known second tries names existing tests."""
    for name in KNOWN:
        path, _, function = name.partition("::")
        assert f"def {function.partition('[')[0]}(" in (ROOT / path).read_text()


def test_a_second_run_ends_with_the_names(tmp_path: Path) -> None:
    """The Makefile starts it so. In pytest's usual folder it would delete the thousands of files of an earlier run."""
    name = "tests/test_second_tries.py::test_each_is_named_with_its_reason"

    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--second-try",
            "-p",
            "no:cacheprovider",
            f"--basetemp={tmp_path / 'of-tests'}",
            name,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )

    assert run.returncode == 0, run.stdout
    assert describe([name])[1] in run.stdout
