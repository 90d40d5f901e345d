"""Tables stay readable at any width, and fast at any length."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from home.journals import START, age, new_trial, record, report, stored
from interfaces.cli.commands import Cli, run_cli

from core_sdk._ground.records import Ended
from core_sdk._home import Home
from core_sdk._home.finding.facts import Facts, facts
from core_sdk._home.finding.groups import group_trials
from core_sdk._home.rows import Figures, TrialRow
from core_sdk._interfaces.cli.trial.groups import print_groups
from core_sdk._interfaces.cli.trial.listing import print_comparison, print_trials
from core_sdk._interfaces.render.output import Form
from core_sdk._interfaces.render.tables import Column, fitted, print_table

_COLUMNS: list[Column[tuple[int, str]]] = [
    Column("ID", lambda row: str(row[0]), is_number=True),
    Column("Näme", lambda row: row[1]),
]


def printed(rows: list[tuple[int, str]], title: str | None = None) -> str:
    with redirect_stdout(io.StringIO()) as output:
        print_table(_COLUMNS, rows, title=title)
    return output.getvalue()


def test_columns_are_aligned_by_the_cells_of_a_terminal() -> None:
    """Columns are aligned by cell width, numbers to the right, and control characters are escaped."""
    table = printed([(1, "a"), (20, "日本"), (3, "\x1b[31m")], title="[bold]")

    assert table.splitlines() == [
        "[bold]",
        " ID  Näme",
        " " + "─" * 12,
        "  1  a",
        " 20  日本",
        "  3  \\x1b[31m",
        "",
    ]


def test_columns_that_do_not_fit_are_left_out_from_the_right() -> None:
    """The first is always there; a narrow one may still fit where a wide one does not."""
    assert fitted([36, 5, 19], [False] * 3, 80) == [36, 5, 19]
    assert fitted([36, 5, 19], [False] * 3, 50) == [36, 5, 0]
    assert fitted([36, 19, 5], [False] * 3, 50) == [36, 0, 5]
    assert fitted([36, 5], [False] * 2, 10) == [36, 0]


def test_long_texts_are_cut_and_share_the_room_that_is_left() -> None:
    """Columns that can be cut are narrowed before any column is left out."""
    assert fitted([3, 100, 10], [False, True, False], 40) == [3, 23, 10]
    assert fitted([3, 100, 10], [False, True, False], 29) == [3, 12, 10]
    assert fitted([3, 100, 10], [False, True, False], 28) == [3, 23, 0]
    assert fitted([3, 8, 10], [False, True, False], 28) == [3, 8, 10]


def test_a_reason_is_cut_with_an_ellipsis(home: Home, cli: Cli) -> None:
    """The description has the whole of it, and no line is wider than 80 columns."""
    reason = "RuntimeError: " + "CUDA out of memory. " * 10
    record(new_trial(home), Ended(time=START + 1, outcome="error", error=reason))

    listed = cli("trial", "list", COLUMNS="80").output.splitlines()

    assert max(map(len, listed)) <= 80
    assert "RuntimeError: CUD…" in listed[2]
    assert reason.strip() in cli("trial", "describe", "1").output


def test_a_table_says_what_it_leaves_out(home: Home, cli: Cli) -> None:
    """A narrow table keeps whole ids and names the columns that it leaves out."""
    record(new_trial(home), stored("0c1a4a1e-8f4b-4be1-9d3b-4d3c5e3c9b11", 45))

    narrow = cli("checkpoint", "list", "--deleted", COLUMNS="56").output
    wide = cli("checkpoint", "list", "--deleted", COLUMNS="120").output

    assert "0c1a4a1e-8f4b-4be1-9d3b-4d3c5e3c9b11" in narrow
    assert "(not shown in 56 columns: State, Size, Stored)" in narrow
    assert "not shown" not in wide


def test_a_table_of_ten_thousand_rows_is_laid_out_at_once() -> None:
    """A table of 10,000 rows is laid out within a second."""
    rows = [(number, f"0c1a4a1e-8f4b-4be1-9d3b-{number:012d}") for number in range(10_000)]
    begin = time.process_time()

    table = printed(rows)

    assert time.process_time() - begin < 1.0
    assert table.count("\n") == 10_003


def test_thousands_of_trials_and_checkpoints_are_listed_in_two_seconds_of_cpu(home: Home, tmp_path: Path) -> None:
    """10,000 checkpoints and 5,000 trials; the index has been built before."""
    record(new_trial(home), *(stored(f"{number:036d}", number) for number in range(10_000)))
    for _ in range(5_000):
        folder = new_trial(home)
        record(folder, report(1, loss=0.5), Ended(time=START + 1, outcome="completed"))
        age(folder)
    run_cli(tmp_path, "trial", "list", "--json")

    for kind, num_rows in (("trial", 5_001), ("checkpoint", 10_000)):
        begin = children_cpu_s()
        listed = run_cli(tmp_path, kind, "list", "--limit", "0")
        cpu_s = children_cpu_s() - begin

        num_others = listed.output.count("\n") - num_rows
        assert num_others in (3, 4)  # a title, a rule, an empty line, and perhaps a note of columns that were left out
        assert cpu_s < 2.0


def children_cpu_s() -> float:
    times = os.times()
    return times.children_user + times.children_system


def test_only_some_of_many_columns_without_room_are_named() -> None:
    """If thousands of columns have no room, only some of them are named."""
    columns = [Column[int](f"column{number}", lambda row: "x" * 70) for number in range(2000)]
    with redirect_stdout(io.StringIO()) as output:
        print_table(columns, [1])

    assert "column12 and 1,987 more)" in output.getvalue()
    assert len(output.getvalue()) < 1000


def test_the_time_of_a_list_is_in_proportion_to_the_values_in_it() -> None:
    """2,000 trials, of which one has 50,000 metrics and labels: a list, groups, and a comparison of three."""
    found = [fact(number, lr=number / 100) for number in range(1, 2000)]
    many = {f"norm/{number}": Figures(1.0, 1.0, 1.0) for number in range(50_000)}
    found.append(fact(2000, many, labels=tuple(map(str, range(50_000))), lr=1.0))
    begin = time.process_time()

    with redirect_stdout(io.StringIO()) as output:
        print_trials(found, (), Form())
        print_groups(group_trials(found, ["lr"]), ["lr"], None, ())
        print_comparison([found[0], found[1], found[-1]])

    assert time.process_time() - begin < 6.0
    assert "and 49,9" in output.getvalue()


def test_a_name_of_600_characters_leaves_room_for_values() -> None:
    """A very long name is cut in the middle, so that values keep their room."""
    name = f"model.{'layer.' * 98}weight"
    found = [fact(number, {name: Figures(number, number, number)}) for number in (1, 2)]

    with redirect_stdout(io.StringIO()) as output:
        print_comparison(found)
        print_trials(found, (), Form())

    compared = next(line for line in output.getvalue().splitlines() if line.startswith(" model."))
    assert compared.split()[-2:] == ["1", "2"]
    assert "layer.weight  " in compared
    assert max(map(len, output.getvalue().splitlines())) <= 80


def fact(
    trial_id: int, metrics: Mapping[str, Figures] | None = None, labels: tuple[str, ...] = (), **hparams: Any
) -> Facts:
    row = TrialRow(
        trial_id=trial_id, experiment_id=1, experiment_name="digits", state="COMPLETED", reason="", hparams=hparams,
        created=START, ended=START, num_attempts=1, steps_completed=1, progress=None, status="", metadata=None,
        latest_checkpoint=None, continued_from=None, num_dropped=0, num_bad_lines=0, ranks=(), labels=labels,
        environment=None,
    )  # fmt: skip
    return facts(row, {"validation": metrics or {"loss": Figures(1.0 / trial_id, 0.0, 1.0)}})
