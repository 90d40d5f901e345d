"""A home's records as tables: their columns, what a query may not do, and Parquet files."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from interfaces.cli.commands import WarmCli
from parts import needs

from core_sdk._analysis.exchange.run import ForeignRun, Row
from core_sdk._analysis.exchange.taking import take_runs
from core_sdk._home import Home
from core_sdk._home.fields import declared
from core_sdk._home.index import Index
from core_sdk.errors import CoreSDKError

DOCUMENT = Path(__file__).parents[3] / "docs/sql.md"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home.create(tmp_path / "home")
    runs = [
        ForeignRun(
            key=str(number),
            where="",
            experiment="e",
            name=f"run-{number}",
            hparams={"lr": number / 10, "opt": {"name": "adam"}},
            labels=["base"],
            rows=[(1.5, step, {"train/loss": float(step), "val/loss": 2 * step}) for step in range(3000)],
        )
        for number in (1, 2)
    ]
    assert [taken.trial_id for taken in take_runs(home, runs)] == [1, 2]
    return home


def ask(home: Home, sql: str) -> list[tuple[object, ...]]:
    from core_sdk._analysis.exchange.database import query

    with query(home, sql) as (_, rows):
        return [tuple(row) for row in rows]


@needs("duckdb")
def test_questions_over_all_tables_are_answered(home: Home) -> None:
    """Metrics, trials, hyperparameters and experiments can be joined, a table also with itself."""
    means = """SELECT trial_id, group_name, avg(value), count(*), epoch(min(time)) FROM metrics
        JOIN (SELECT trial_id, group_name, steps_completed FROM metrics) USING (trial_id, group_name, steps_completed)
        GROUP BY ALL ORDER BY ALL"""
    both = "SELECT e.name, t.name, t.labels[1] FROM trials t JOIN experiments e USING (experiment_id) ORDER BY ALL"

    assert ask(home, means) == [
        (1, "training", 1499.5, 3000, 1.5),
        (1, "validation", 2999.0, 3000, 1.5),
        (2, "training", 1499.5, 3000, 1.5),
        (2, "validation", 2999.0, 3000, 1.5),
    ]
    assert ask(home, "SELECT name, value, number FROM HPARAMS ORDER BY ALL LIMIT 3") == [
        ("lr", "0.1", 0.1),
        ("lr", "0.2", 0.2),
        ("opt.name", "adam", None),
    ]
    assert ask(home, both) == [("e", "run-1", "base"), ("e", "run-2", "base")]
    assert ask(home, "SELECT count(*) FROM checkpoints") == [(0,)]


@needs("duckdb")
@pytest.mark.parametrize("num_in_memory", [0, 10_000])
def test_points_of_every_kind_of_number_are_rows(
    home: Home, num_in_memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Integers, floats and infinities in one series keep their values, also where the points lie in a file."""
    from core_sdk._analysis.exchange import database

    monkeypatch.setattr(database, "_NUM_IN_MEMORY", num_in_memory)
    values = [1, 0.5, 2**62, math.inf, -7, math.nan, *range(100), 1e-300]
    rows: list[Row] = [(1.5, step, {"mixed": value}) for step, value in enumerate(values)]
    list(take_runs(home, [ForeignRun(key="3", where="", experiment="e", rows=rows)]))

    asked = ask(home, "SELECT value FROM metrics WHERE trial_id = 3 ORDER BY steps_completed")

    assert asked == [(None if math.isnan(value) else float(value),) for value in values]
    assert ask(home, "SELECT count(*) FROM metrics") == [(12_000 + len(values),)]


@needs("duckdb")
def test_points_that_come_meanwhile_are_left_to_the_next_query(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query for which room was made before more points came has whole blocks, and no more than the room."""
    monkeypatch.setattr(Index, "count_shown_points", lambda index: 4000)

    ((num_points, last),) = ask(home, "SELECT count(*), max(steps_completed) FROM metrics")

    assert isinstance(num_points, int) and 3000 <= num_points <= 4000
    assert last == 2999


@needs("duckdb")
def test_a_query_reaches_no_file(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that reads or writes a file, reaches out or loosens this is refused with the database's words."""
    monkeypatch.chdir(tmp_path)
    for sql in (
        "COPY trials TO 'trials.csv'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "ATTACH 'other.db'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "RESET lock_configuration",
        "SELECT * FROM home",
        "SELEC",
    ):
        with pytest.raises(CoreSDKError, match="the query failed: "):
            ask(home, sql)

    made = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*")}
    assert made == {"home"}


@needs("duckdb")
def test_the_document_names_all_columns(home: Home) -> None:
    """docs/sql.md has each table. The columns of rows are their fields; it names others in order."""
    from core_sdk._analysis.exchange.database import ROWS, TABLES

    documented = {
        match[1]: re.findall(r"`(\w+)`", match[2])
        for match in re.finditer(r"^\| `(\w+)` \|[^|]*\|(.*)\|$", DOCUMENT.read_text(), re.MULTILINE)
    }

    tables = {table: [column[0] for column in ask(home, f"describe {table}")] for table in TABLES}
    of_rows = {table: [field.name for field in declared(row)] for table, row in ROWS.items()}
    assert tables == documented | of_rows
    assert all(set(documented[table]) <= set(names) for table, names in of_rows.items())


@needs("duckdb")
def test_the_commands_print_tables_json_and_csv_and_write_parquet(
    home: Home, warm_cli: WarmCli, tmp_path: Path
) -> None:
    """`core-sdk sql` prints at most 200 rows for people and all for programs; `core-sdk export` writes what it asks."""
    import duckdb

    steps = "select steps_completed, value from metrics where trial_id = 1 and group_name = 'training' order by 1"

    shown = warm_cli.run(tmp_path, "sql", steps)
    as_csv = warm_cli.run(tmp_path, "sql", "-", "--csv", stdin=steps)
    as_json = warm_cli.run(tmp_path, "sql", "select created, created, labels from trials where trial_id = 1", "--json")
    wrong = warm_cli.run(tmp_path, "sql", "select nothing")
    exported = [warm_cli.run(tmp_path, "export", str(tmp_path / "it's")) for _ in range(2)]

    assert len(shown.output.splitlines()) == 203 and "the first 200 rows" in shown.errors
    assert (
        as_csv.output.splitlines()[:2] == ["steps_completed,value", "0,0.0"] and len(as_csv.output.splitlines()) == 3001
    )
    assert '"created": "1970-01-01 00:00:01.500000", "created_1": "1970' in as_json.output
    assert '"labels": ["base"]' in as_json.output
    assert wrong.status == 1 and "the query failed" in wrong.errors
    assert [each.status for each in exported] == [0, 0]
    read = duckdb.connect().execute(
        "select count(*), sum(value) from read_parquet($1)", [str(tmp_path / "it's/metrics.parquet")]
    )
    assert read.fetchall() == [(12_000, 2 * 3 * sum(range(3000)))]
