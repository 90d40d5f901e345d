"""Tables stay readable at any width, and fast at any length."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import time
from contextlib import redirect_stdout

import pytest
from cli.commands import COMMAND, Cli
from tracking.journals import START, age, new_trial, record, report, stored

from core_sdk.cli.render.tables import Column, fitted, print_table
from core_sdk.records import Ended
from core_sdk.tracking import Home

_COLUMNS: list[Column[tuple[int, str]]] = [
    Column("ID", lambda row: str(row[0]), is_number=True),
    Column("Näme", lambda row: row[1]),
]


def printed(rows: list[tuple[int, str]], title: str | None = None) -> str:
    with redirect_stdout(io.StringIO()) as output:
        print_table(_COLUMNS, rows, title=title)
    return output.getvalue()


def test_columns_are_aligned_by_the_cells_of_a_terminal() -> None:
    """Numbers to the right; some letters take two cells, and none does harm."""
    table = printed([(1, "a"), (20, "日本"), (3, "\x1b[31m")], title="[bold]")

    assert [line.rstrip() for line in table.splitlines()] == [
        "[bold]",
        "",
        "  ID   Näme",
        " " + "─" * 15,
        "   1   a",
        "  20   日本",
        "   3   \\x1b[31m",
        "",
    ]


def test_the_widest_columns_give_way_first() -> None:
    """As far as is needed, and none vanishes."""
    assert fitted([36, 5, 19], 60) == [36, 5, 19]
    assert fitted([36, 5, 19], 40) == [17, 5, 17]
    assert fitted([3, 5], 0) == [1, 1]


def test_a_table_of_ten_thousand_rows_is_laid_out_at_once() -> None:
    """It is a list that a person looks through, or pipes into grep."""
    rows = [(number, f"0c1a4a1e-8f4b-4be1-9d3b-{number:012d}") for number in range(10_000)]
    begin = time.process_time()

    table = printed(rows)

    assert time.process_time() - begin < 1.0
    assert table.count("\n") == 10_004


def test_a_narrow_terminal_folds_what_is_too_wide(home: Home) -> None:
    """No line is longer than the terminal, and nothing is left out."""
    record(new_trial(home), stored("0c1a4a1e-8f4b-4be1-9d3b-4d3c5e3c9b11", 45))
    ours, terminal = pty.openpty()

    subprocess.run(
        [*COMMAND, "checkpoint", "list", "--deleted"],
        stdout=terminal,
        env=os.environ | {"COLUMNS": "60"},
        check=True,
    )
    os.close(terminal)
    lines = re.sub("\x1b\\[[0-9;]*m", "", os.read(ours, 1 << 16).decode()).splitlines()
    os.close(ours)

    assert max(map(len, lines)) <= 60
    assert "0c1a4a1e-8f4b-4be1-9d3b-4d3c5e3c9b11" in "".join(line[2:15].strip() for line in lines[3:])


@pytest.mark.slow
def test_thousands_of_trials_and_checkpoints_are_listed_within_two_seconds(home: Home, cli: Cli) -> None:
    """10,000 checkpoints and 5,000 trials; the index has been built before."""
    record(new_trial(home), *(stored(f"{number:036d}", number) for number in range(10_000)))
    for _ in range(5_000):
        folder = new_trial(home)
        record(folder, report(1, loss=0.5), Ended(time=START + 1, outcome="completed"))
        age(folder)
    cli("trial", "list", "--json")

    for kind, num_rows in (("trial", 5_001), ("checkpoint", 10_000)):
        begin = time.monotonic()
        listed = cli(kind, "list")
        duration_s = time.monotonic() - begin

        assert listed.output.count("\n") == num_rows + 4
        assert duration_s < 2.0
