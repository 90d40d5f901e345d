"""The database file may be missing, old, new, damaged or impossible to write: the index answers all the same."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable

import pytest
from home.journals import append, everything, lines, new_trial, rebuilt, record, report, stored
from promises import promise

from core_sdk._home import Home
from core_sdk._home.index import Index
from core_sdk._home.index._schema import REVISION


@pytest.fixture
def indexed(home: Home) -> str:
    """Returns all answers of the index of three trials."""
    for number in range(3):
        record(new_trial(home), *(report(steps, loss=steps + number) for steps in range(200)), stored(f"c{number}", 3))
    return rebuilt(home)


def cut_in_the_middle(content: bytes) -> bytes:
    return content[: len(content) // 2 + 100]


def cut_within_the_last_page(content: bytes) -> bytes:
    return content[: -4096 + 100]


def overwrite_the_header(content: bytes) -> bytes:
    return b"no database at all" + content[18:]


def zero_the_middle(content: bytes) -> bytes:
    start = len(content) // 2
    return content[:start] + bytes(8192) + content[start + 8192 :]


def scramble_all_but_the_first_page(content: bytes) -> bytes:
    return content[:4096] + random.Random(1).randbytes(len(content) - 4096)


def replace_by_text(_: bytes) -> bytes:
    return b"hello\n"


@promise("index-rebuilt")
@pytest.mark.parametrize(
    "damage",
    [
        cut_in_the_middle,
        cut_within_the_last_page,
        overwrite_the_header,
        zero_the_middle,
        scramble_all_but_the_first_page,
        replace_by_text,
    ],
)
def test_a_damaged_index_is_built_again_and_says_so(
    home: Home, indexed: str, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged index is rebuilt with a warning, and nothing is missing."""
    home.database.write_bytes(damage(home.database.read_bytes()))
    with Index(home) as index:
        index.refresh()

        assert everything(index) == indexed
    assert f"the index {home.database} cannot be used" in caplog.text


def test_a_database_of_something_else_is_replaced(home: Home, indexed: str, caplog: pytest.LogCaptureFixture) -> None:
    """A database without the index's tables is replaced."""
    home.database.unlink()
    with sqlite3.connect(home.database) as connection:
        connection.execute("CREATE TABLE something (a, b)")
    connection.close()

    with Index(home) as index:
        index.refresh()

        assert everything(index) == indexed
    assert "cannot be used (it is of revision 0" in caplog.text


def test_damage_while_the_index_is_open_is_mended(home: Home, indexed: str, caplog: pytest.LogCaptureFixture) -> None:
    """The question that meets the damage is answered from the rebuilt index."""
    with Index(home) as index:
        index.refresh()
        home.database.write_bytes(random.Random(1).randbytes(home.database.stat().st_size))

        assert everything(index) == indexed
    assert "cannot be used" in caplog.text


@promise("index-rebuilt")
@pytest.mark.parametrize("also_a_left_journal", [True, False])
def test_a_deleted_index_is_built_again(home: Home, indexed: str, also_a_left_journal: bool) -> None:
    """A deleted index is rebuilt silently, and a leftover rollback journal is not applied to it."""
    if also_a_left_journal:
        leave_a_rollback_journal(home)
    home.database.unlink()
    with Index(home) as index:
        index.refresh()

        assert everything(index) == indexed


def leave_a_rollback_journal(home: Home) -> None:
    """Leaves a rollback journal by dying in a transaction."""
    script = """if True:
        import os, sqlite3, sys
        connection = sqlite3.connect(sys.argv[1])
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("DELETE FROM block")
        os.kill(os.getpid(), 9)
    """
    subprocess.run([sys.executable, "-c", script, str(home.database)], check=False)
    assert home.database.with_name("tracker.db-journal").stat().st_size > 0


def test_an_open_index_follows_when_another_process_rebuilds_it(home: Home, indexed: str) -> None:
    """An open index uses the new file after another process has rebuilt it."""
    with Index(home) as index:
        Index.rebuild(home)
        append(home.trial(1), 1, lines(report(1000, loss=0.5)))

        index.refresh()

        assert index.trial(1).steps_completed == 1000
        with Index(home) as other:
            assert [row.steps_completed for row in other.reports(1)][-1] == 1000


@pytest.mark.parametrize("revision", [REVISION - 1, REVISION + 1])
def test_an_index_of_another_version_is_built_again(
    home: Home, indexed: str, revision: int, caplog: pytest.LogCaptureFixture
) -> None:
    """An index of another version is rebuilt instead of migrated."""
    with sqlite3.connect(home.database) as connection:
        connection.execute(f"PRAGMA user_version = {revision}")
    connection.close()

    with Index(home) as index:
        index.refresh()

        assert everything(index) == indexed
    assert f"it is of revision {revision}" in caplog.text


def test_a_missing_home_is_an_empty_index_and_is_not_made(home: Home) -> None:
    """A missing home has an empty index, and reading does not create it."""
    with Index(home) as index:
        index.refresh()

        assert index.trials() == []
        assert index.experiments() == []
        assert Index.rebuild(home).num_trials == 0
    assert not home.root.exists()


def test_where_no_file_can_be_made_the_index_is_kept_in_memory(
    home: Home, indexed: str, caplog: pytest.LogCaptureFixture
) -> None:
    """If no index file can be written, the index is kept in memory."""
    home.database.unlink()
    home.database.mkdir()
    with Index(home) as index:
        index.refresh()

        assert everything(index) == indexed
    assert "cannot be written" in caplog.text


def test_on_a_full_disk_the_index_is_kept_in_memory(
    home: Home, indexed: str, run_script: Callable[..., tuple[int, str, str]]
) -> None:
    """All is answered, and a warning says why it is slow. (A limit on file sizes stands for the full disk.)"""
    home.database.unlink()

    code, output, errors = run_script(
        """
        import logging, resource, sys
        from pathlib import Path
        from core_sdk._home import Home
        from core_sdk._home.index import Index

        logging.basicConfig()
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        with Index(Home.open(Path(sys.argv[1]))) as index:
            index.refresh()
            print(sum(1 for _ in index.reports(2)))
        """,
        str(home.root),
    )

    assert (code, output) == (0, "200\n"), errors
    assert "cannot be written" in errors


def test_a_reader_who_pauses_does_not_keep_indexers_waiting(home: Home, indexed: str) -> None:
    """A reader that pauses between two reports holds no lock against indexers."""
    with Index(home) as reader, Index(home) as indexer:
        reports = reader.reports(1)
        next(reports)
        append(home.trial(1), 1, lines(report(1000, loss=0.5)))

        assert indexer.refresh().num_points == 1
        assert sum(1 for _ in reports) >= 199
