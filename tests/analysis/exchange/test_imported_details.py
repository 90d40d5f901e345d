"""Details that an import keeps: restarts, fragments beside a database, the sign of zero, runs without an end."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
import torch
from analysis.exchange.records import RECORDS, curve, database, imported
from torch.utils.tensorboard import SummaryWriter

from core_sdk._analysis.exchange.run import RESTART, ForeignRun
from core_sdk._analysis.exchange.taking import take_runs
from core_sdk._home import Home, open_view

FALLING = [(step, 1 / (step + 1)) for step in range(5)]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.create(tmp_path / "home")


def write_from(directory: Path, first: int, last: int, value: float, purge_step: int | None, suffix: str) -> None:
    with SummaryWriter(str(directory), purge_step=purge_step, filename_suffix=suffix) as writer:
        for step in range(first, last):
            writer.add_scalar("loss", value, step)


def test_what_tensorboard_hides_after_a_restart_is_superseded(home: Home, tmp_path: Path) -> None:
    """A writer with a `purge_step` is a later attempt: what stood before from that step on is kept, and hidden."""
    write_from(tmp_path / "run", 0, 10, 1.0, None, ".0")
    write_from(tmp_path / "run", 4, 6, 2.0, 4, ".1")
    write_from(tmp_path / "run", 2, 3, 3.0, 2, ".2")

    (taken,) = imported(home, tmp_path / "run")

    assert curve(home, 1, "training", "loss") == [(0, 1.0), (1, 1.0), (2, 3.0)]
    with open_view(home) as view:
        assert len(list(view.reports(1, superseded=True))) == 13
        assert [row.state for row in view.trials()] == ["COMPLETED"]
    assert taken.run.losses == []


@pytest.mark.parametrize("step", [0, -5, 2**70])
def test_a_restart_at_any_step_is_an_attempt(home: Home, step: int) -> None:
    """A restart at 0 hides all that was before; one that no record can have hides what it can."""
    rows = [(1.0, 3, {"loss": 1.0}), (2.0, step, RESTART), (3.0, 0, {"loss": 2.0})]

    list(take_runs(home, [ForeignRun(key="a", where="a", experiment="e", rows=rows)]))

    assert curve(home, 1, "training", "loss") == ([(0, 2.0), (3, 1.0)] if step > 0 else [(0, 2.0)])


def test_a_writer_that_begins_is_no_restart(home: Home, tmp_path: Path) -> None:
    """The first writer of a run may have a `purge_step`, too."""
    write_from(tmp_path / "run", 4, 6, 2.0, 4, ".0")

    imported(home, tmp_path / "run")

    with open_view(home) as view:
        assert [row.num_attempts for row in view.trials()] == [1]


def test_fragments_of_trackio_become_trials(home: Home, tmp_path: Path) -> None:
    """What trackio has written on a network file system is a trial like one of a database."""
    (taken,) = imported(home, RECORDS["trackio-inbox"](tmp_path))

    record = home.folder(1).read_record()
    assert (record.name, record.hparams, record.labels) == ("first", {"lr": 0.1, "seed": 3}, ["group=sweep"])
    assert home.experiment(record.experiment_id).read().name == "digits"
    assert curve(home, 1, "training", "loss") == FALLING
    assert [str(value) for _, value in curve(home, 1, "training", "z")] == ["-0.0"] * 5
    assert curve(home, 1, "nested", "a/b") == [(5, 1)]
    assert taken.run.losses == []


@pytest.mark.parametrize("chosen", [".", "digits.db"])
def test_fragments_beside_a_database_are_not_left_out(home: Home, tmp_path: Path, chosen: str) -> None:
    """Fragments of a run that the database has are its next rows, without those that the database has already."""
    folder = RECORDS["trackio-inbox"](tmp_path)
    path = database("trackio", folder / "digits.db")
    (fragment,) = folder.glob("inbox/*/*.jsonl")
    lines = fragment.read_text().splitlines(keepends=True)
    with sqlite3.connect(path) as connection:
        ((run_id, log_id),) = connection.execute("SELECT run_id, log_id FROM metrics WHERE step = 5").fetchall()
    connection.close()
    (ours,) = {line.partition('"run_id":"')[2][:32] for line in lines}
    of_run = "".join(lines).replace(ours, run_id).replace('"step":', '"step":1')
    in_database = lines[0].replace(ours, run_id).replace("log_id", "was").replace("}\n", f',"log_id":"{log_id}"}}\n')
    other_writer = folder / "inbox" / "another" / "00000000.jsonl"
    other_writer.parent.mkdir()
    other_writer.write_text(in_database + of_run)

    taken = imported(home, folder / chosen)

    assert [each.fate for each in taken] == ["taken", "taken"]
    later = [(10 + step, value) for step, value in FALLING]
    assert curve(home, 1, "training", "loss") == [*FALLING, *later]
    assert curve(home, 2, "training", "loss") == FALLING


def test_an_inbox_alone_is_imported_whatever_lies_beside_it(home: Home, tmp_path: Path) -> None:
    """Of a folder `inbox` that was named itself all fragments are imported, in the order of their times."""
    folder = RECORDS["trackio-inbox"](tmp_path)
    database("trackio", folder / "digits.db")
    (fragment,) = folder.glob("inbox/*/*.jsonl")
    lines = fragment.read_text().splitlines(keepends=True)
    (folder / "inbox" / "zz").mkdir()
    (folder / "inbox" / "aa").mkdir()
    (folder / "inbox" / "zz" / "00000000.jsonl").write_text("".join(lines[:3]))
    later = [line.replace('"timestamp":"2026', '"timestamp":"2027') for line in lines[3:]]
    (folder / "inbox" / "aa" / "00000000.jsonl").write_text("".join(later) + "{\n")
    shutil.rmtree(fragment.parent)

    (taken,) = imported(home, folder / "inbox")

    assert curve(home, 1, "training", "loss") == FALLING
    assert taken.run.losses == ["1 lines of 00000000.jsonl are damaged, and were left out"]


def test_a_zero_keeps_its_sign(home: Home, tmp_path: Path) -> None:
    """-0.0 is a float, also where a hyperparameter of event files looks like an integer."""
    with SummaryWriter(str(tmp_path / "run")) as writer:
        writer.add_hparams({"lr": -0.0, "layers": 2.0}, {})
        writer.add_scalar("loss", -0.0, 1)
        writer.add_scalar("double", torch.tensor(-0.0, dtype=torch.float64), 1, new_style=True, double_precision=True)

    imported(home, tmp_path / "run")

    assert repr(sorted(home.folder(1).read_record().hparams.items())) == "[('layers', 2), ('lr', -0.0)]"
    assert [str(value) for name in ("loss", "double") for _, value in curve(home, 1, "training", name)] == ["-0.0"] * 2


@pytest.mark.parametrize("status", ["RUNNING", "SCHEDULED"])
def test_a_run_that_has_no_end_is_paused(home: Home, tmp_path: Path, status: str) -> None:
    """A run that MLflow calls running has not failed: it is PAUSED, and its metadata say what MLflow says."""
    path = RECORDS["mlflow-database"](tmp_path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE runs SET status = ?, end_time = NULL WHERE name = 'first'", (status,))
    connection.close()

    imported(home, path)

    with open_view(home) as view:
        (row,) = (row for row in view.trials() if row.name == "first")
    assert (row.state, (row.metadata or {})["mlflow.status"]) == ("PAUSED", status)
