"""Runs of other trackers become trials: whole, once, and with what can be read of torn files."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from analysis.exchange.records import RECORDS, curve, imported
from interfaces.cli.commands import WarmCli
from torch.utils.tensorboard import SummaryWriter

from core_sdk._analysis.exchange.kinds import find_runs
from core_sdk._analysis.exchange.run import ForeignRun, Row, parsed
from core_sdk._analysis.exchange.taking import take_runs
from core_sdk._analysis.exchange.wandb.values import with_media
from core_sdk._execution.steering import trials
from core_sdk._ground.records import MediaFile, TrialRecord
from core_sdk._home import Home, open_view
from core_sdk.errors import CoreSDKError

FALLING = [(step, 1 / (step + 1)) for step in range(5)]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.create(tmp_path / "home")


def write_events(directory: Path) -> Path:
    with SummaryWriter(str(directory)) as writer:
        for step in range(5):
            writer.add_scalar("train/loss", 1 / (step + 1), step)
            writer.add_scalar("val/loss", 2.0, step)
        writer.add_scalar("loss", math.nan, 5)
        writer.add_image("cat", torch.zeros(3, 2, 4), 5)
        writer.add_text("note", "hello", 5)
        writer.add_hparams({"lr": 0.1, "opt": "adam", "layers": 2}, {"best": 1.0})
    return directory


def record_of(home: Home, trial_id: int | None) -> TrialRecord:
    assert trial_id is not None
    return home.folder(trial_id).read_record()


def test_event_files_become_trials(home: Home, tmp_path: Path) -> None:
    """A directory with event files is a trial, with its curves, its media and the hyperparameters of add_hparams()."""
    for name in ("a", "b/version_0"):
        write_events(tmp_path / "logs" / name)

    first, second = imported(home, tmp_path / "logs")

    assert [record_of(home, each.trial_id).name for each in (first, second)] == ["a", "b/version_0"]
    record = record_of(home, first.trial_id)
    assert record.hparams == {"lr": 0.1, "opt": "adam", "layers": 2}
    assert curve(home, 1, "training", "loss") == [(step, float(torch.tensor(value))) for step, value in FALLING]
    assert curve(home, 1, "validation", "loss") == [(step, 2.0) for step in range(5)]
    ((step, value),) = curve(home, 1, "other", "loss")  # "loss" would be the same metric as "train/loss"
    assert step == 5 and isinstance(value, float) and math.isnan(value)
    with open_view(home) as view:
        (row,) = view.trials(trial_ids=[1])
        media = {each.name: each.file for each in view.media(1)}
    assert row.state == "COMPLETED"
    assert media["cat"].media_type == "image/png" and (media["cat"].width, media["cat"].height) == (4, 2)
    assert (
        isinstance(media["note"], MediaFile) and (home.folder(1).media_path / media["note"].name).read_text() == "hello"
    )


@pytest.mark.parametrize("kind", ["mlflow-folder", "mlflow-database"])
def test_runs_of_mlflow_become_trials(kind: str, home: Home, tmp_path: Path) -> None:
    """Runs of MLflow are trials with their parameters, tags, notes, curves and ends; deleted ones are left out."""
    path = RECORDS[kind](tmp_path)

    taken = imported(home, path)

    records = {record.name: record for each in taken if (record := record_of(home, each.trial_id))}
    assert set(records) == {"first", "second"}
    first = records["first"]
    assert home.experiment(first.experiment_id).read().name == "digits"
    assert first.hparams == {"lr": 0.1, "opt": "adam", "layers": [64, 10], "seed": 3}
    assert (first.labels, first.notes, first.seed) == (["team=vision"], "A *note*.", 3)
    assert curve(home, first.trial_id, "training", "loss") == FALLING
    assert curve(home, first.trial_id, "validation", "accuracy") == [(step, step / 5) for step in range(5)]
    assert curve(home, first.trial_id, "training", "high") == [(5, math.inf)]
    with open_view(home) as view:
        rows = {row.name: row for row in view.trials()}
    assert {name: row.state for name, row in rows.items()} == {"first": "COMPLETED", "second": "ERROR"}
    assert (rows["first"].metadata or {})["mlflow.user"] == "ada"


def test_runs_of_trackio_become_trials(home: Home, tmp_path: Path) -> None:
    """Runs of trackio are trials of an experiment with the project's name."""
    (taken,) = imported(home, RECORDS["trackio"](tmp_path))

    record = record_of(home, taken.trial_id)
    assert (record.name, record.hparams, record.labels) == ("first", {"lr": 0.1, "seed": 3}, ["group=sweep"])
    assert home.experiment(record.experiment_id).read().name == "digits"
    assert curve(home, 1, "training", "loss") == FALLING
    assert curve(home, 1, "text", "text") == [(5, "hello")]
    assert curve(home, 1, "nested", "a") == [(5, 1)]


def test_runs_of_wandb_become_trials(home: Home, tmp_path: Path) -> None:
    """Runs of wandb are trials with their configuration, tags, notes, curves, media, summary and ends."""
    first, second = imported(home, RECORDS["wandb"](tmp_path))

    record = record_of(home, first.trial_id)
    assert home.experiment(record.experiment_id).read().name == "digits"
    assert record.hparams == {"lr": 0.1, "opt": {"name": "adam"}, "seed": 3, "late": 1}
    assert (record.name, record.labels, record.notes) == ("first", ["base", "group=sweep"], "A *note*.")
    assert curve(home, 1, "training", "loss") == FALLING
    assert curve(home, 1, "nested", "a") == [(step, step) for step in range(5)]
    assert curve(home, 1, "text", "text") == [(6, "hello")]
    assert curve(home, 1, "text", "long") == [(8, "x" * 70_000)]
    with open_view(home) as view:
        rows = {row.trial_id: row for row in view.trials()}
        media = {each.name: each.file for each in view.media(1)}
    assert rows[1].state == "COMPLETED" and rows[1].metadata == {"best": 0.9}
    assert (rows[2].state, rows[2].reason) == ("ERROR", "it exited with status 1")
    assert {name: file.kind for name, file in media.items()} == {
        "image": "image",
        "histogram": "histogram",
        "table": "table",
        "html": "figure",
    }
    assert media["image"].caption == "black"
    assert second.run.losses == first.run.losses == []


@pytest.mark.parametrize("is_flipped", [False, True])
def test_what_can_be_read_of_a_torn_log_of_wandb_is_imported(is_flipped: bool, home: Home, tmp_path: Path) -> None:
    """Of a log that was cut off, or has a flipped bit, the other records are imported, and the loss is said."""
    (log,) = RECORDS["wandb"](tmp_path).glob("*/run-first0id.wandb")
    content = bytearray(log.read_bytes())
    third = content.index(b"0.3333")
    if is_flipped:
        content[third] ^= 1
    else:
        del content[third:]
    log.write_bytes(content)

    taken = next(each for each in imported(home, log) if each.trial_id)

    steps = [step for step, _ in curve(home, 1, "training", "loss")]
    assert 0 < len(steps) < 5
    assert [loss for loss in taken.run.losses if "ends within a record" in loss or "are damaged" in loss]


def test_a_file_of_wandbs_media_lies_in_its_folder(home: Home, tmp_path: Path) -> None:
    """Media whose files are missing, too strange, or outside of the run's folder are left out and named."""
    (tmp_path / "secret.png").write_bytes(b"secret")
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.png").write_bytes(b"a")
    losses: list[str] = []
    image = {"_type": "image-file", "path": "a.png"}

    found = with_media(
        {
            "several": {"_type": "images/separated", "filenames": ["a.png"], "captions": None},
            "packed": {"_type": "histogram", "values": [1, 2], "packedBins": {"min": 0, "size": 0.5, "count": 2}},
            "outside": {**image, "path": "../secret.png"},
            "missing": {**image, "path": "b.png"},
            "strange": {**image, "path": "a.exe"},
            "new": {"_type": "joined-table"},
        },
        files,
        losses.append,
    )

    assert [each.content for each in found["several"]] == [b"a"]
    assert b'"edges":[0.0,0.5,1.0]' in found["packed"].content
    assert set(found) == {"several", "packed"}
    assert len(losses) == 4


def test_a_second_import_adds_nothing(home: Home, tmp_path: Path) -> None:
    """A run is known again, also when its files were moved, until its trial is deleted."""
    below = tmp_path / "all"
    below.mkdir()
    for make in RECORDS.values():
        make(below)
    write_events(below / "logs")

    first = imported(home, below)
    below.rename(tmp_path / "moved")
    second = imported(home, tmp_path / "moved")
    trials.delete(home, 1)
    third = imported(home, tmp_path / "moved")

    assert {each.fate for each in first} == {"taken"} and len(first) >= 4
    assert {each.fate for each in second} == {"known"} and len(second) == len(first)
    assert [each.fate for each in third].count("taken") == 1


def test_what_can_be_read_of_a_torn_event_file_is_imported(home: Home, tmp_path: Path) -> None:
    """Of an event file that was cut off, or has a flipped bit, the events before it are imported, and it is said."""
    (whole,) = write_events(tmp_path / "whole").glob("events*")
    content = whole.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    for name, torn in {"cut": content[: len(content) // 2], "flipped": bytes(flipped)}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / whole.name).write_bytes(torn)

        (taken,) = imported(Home.create(tmp_path / f"home-{name}"), tmp_path / name)

        assert taken.trial_id == 1
        assert len(curve(Home(tmp_path / f"home-{name}"), 1, "training", "loss")) >= 2
        assert any("not read to its end" in loss or "damaged" in loss for loss in taken.run.losses), name


def test_damaged_records_of_mlflow_are_left_out_and_named(home: Home, tmp_path: Path) -> None:
    """Lines that are no points, and files that cannot be read, are counted; what else the run has is imported."""
    path = RECORDS["mlflow-folder"](tmp_path)
    (metric,) = path.glob("*/*/metrics/train/loss")
    metric.write_text("1 0.5 0\n1 half 1\n2 0.25 2\n3 0.1")
    (metric.parents[2] / "meta.yaml").write_text("run_name: [")
    broken = tmp_path / "broken.db"
    broken.write_bytes(RECORDS["mlflow-database"](tmp_path).read_bytes()[:5000])

    taken = imported(home, tmp_path)

    losses = [loss for each in taken for loss in each.run.losses]
    (trial_id,) = (each.trial_id for each in taken if str(metric.parents[2]) == each.run.where)
    assert trial_id is not None
    assert curve(home, trial_id, "training", "loss") == [(0, 0.5), (2, 0.25), (0, 0.1)] or losses
    assert any("1 lines of the metric train/loss are damaged" in loss for loss in losses)
    assert any("meta.yaml cannot be read" in loss for loss in losses)
    assert any(each.fate == "empty" and "broken.db" in each.run.where for each in taken)


def test_an_import_that_is_interrupted_leaves_whole_trials(home: Home) -> None:
    """Of the run at which an import was interrupted nothing is left, and the next import takes it."""

    def rows(*, is_interrupted: bool) -> Iterator[Row]:
        for step in range(10_000):
            yield 1.0, step, {"loss": 0.5}
        if is_interrupted:
            raise KeyboardInterrupt

    def runs(*, is_interrupted: bool) -> Iterator[ForeignRun]:
        for name in ("a", "b"):
            rows_of_run = rows(is_interrupted=is_interrupted and name == "b")
            yield ForeignRun(key=name, where=name, experiment="e", rows=rows_of_run)

    with pytest.raises(KeyboardInterrupt):
        list(take_runs(home, runs(is_interrupted=True)))
    before = home.trial_ids()
    taken = list(take_runs(home, runs(is_interrupted=False)))

    assert before == [1]
    assert [each.fate for each in taken] == ["known", "taken"]
    assert not (home.root / "merging").exists()
    assert len(curve(home, home.trial_ids()[-1], "training", "loss")) == 10_000


def test_values_that_no_trial_can_have_are_named(home: Home) -> None:
    """Names that are too long, steps below 0 and hyperparameters beyond JSON are left out, and said."""
    run = ForeignRun(
        key="a",
        where="a",
        experiment="e" * 2000,
        labels=["x", "y" * 2000],
        hparams={"lr": 2**70, "ok": 1},
        rows=[(1.0, -1, {"loss": 1.0}), (math.nan, 1, {"loss": 1.0}), (1.0, 2, {"loss": 1.0, "big": 2**70})],
    )

    (taken,) = take_runs(home, [run])

    record = record_of(home, taken.trial_id)
    assert (home.experiment(record.experiment_id).read().name, record.labels, record.hparams) == (
        "imported",
        ["x"],
        {"ok": 1},
    )
    assert curve(home, 1, "training", "loss") == [(2, 1.0)]
    assert curve(home, 1, "training", "big") == [(2, float(2**70))]
    assert any("2 rows were left out" in loss for loss in run.losses)
    assert len(run.losses) == 4


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.1", 0.1), ("1e-4", 1e-4), ("True", True), ("None", None), ("[64, 10]", [64, 10]), ("adam", "adam"),
     ("'quoted'", "'quoted'"), ("007", "007"), ("{", "{")],
)  # fmt: skip
def test_texts_that_spell_values_become_values(text: str, value: Any) -> None:
    """Numbers, bools, None, lists and dicts that were kept as texts become values."""
    assert parsed(text) == value


def test_the_command_says_what_it_has_imported(warm_cli: WarmCli, tmp_path: Path) -> None:
    """`core-sdk import` names each trial, says what was here already, and refuses what it does not know."""
    path = RECORDS["mlflow-folder"](tmp_path)
    (tmp_path / "empty").mkdir()

    first = warm_cli.run(tmp_path, "import", str(path), "--name", "old")
    second = warm_cli.run(tmp_path, "import", str(path))
    listed = warm_cli.run(tmp_path, "trial", "list", "--csv")
    refused = warm_cli.run(tmp_path, "import", str(tmp_path / "empty"))
    missing = warm_cli.run(tmp_path, "import", str(tmp_path / "nowhere"))

    assert (first.status, first.output.splitlines()[-1]) == (0, "2 runs were imported, 0 were here already")
    assert second.output.splitlines()[-1] == "0 runs were imported, 2 were here already"
    assert listed.output.count(",old,") == 2
    assert refused.status == 1 and "cannot be imported" in refused.errors
    assert missing.status == 1 and "no such file" in missing.errors


def test_a_home_is_not_imported(home: Home) -> None:
    """A home is refused with the command that takes its trials."""
    with pytest.raises(CoreSDKError, match="home merge"):
        find_runs(home.root)
