"""`core-sdk trial media` lists what a trial has reported, and writes its files under names that say what they are."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from interfaces.cli.commands import Cli
from torch.utils.tensorboard import SummaryWriter

from core_sdk import core, media
from core_sdk._home import Home

HOSTILE = "../a/b\x1b[31m\n"


@pytest.fixture
def trial(home: Home) -> Home:
    with core.init() as context:
        context.train.report_metrics("validation", 1, {"words": [media.Text("one"), media.Text("two")], "loss": 0.5})
        context.train.report_metrics(HOSTILE, 2, {HOSTILE: media.Text("three", caption=HOSTILE), "..": media.Text("4")})
        context.train.report_metrics("validation", 2, {"counts": media.Histogram(counts=[1], edges=[0, 1])})
    return home


@pytest.mark.usefixtures("trial")
def test_media_are_listed_as_table_json_and_csv(cli: Cli) -> None:
    """Media are listed in a table, JSON and CSV, and --kind selects some of them."""
    table = cli("trial", "media", "1")
    objects = json.loads(cli("trial", "media", "1", "--json").output)
    rows = list(csv.DictReader(io.StringIO(cli("trial", "media", "1", "--csv", "--kind", "text").output)))

    assert "words[1]" in table.output
    assert "5 media in 5 files" in table.output
    assert "\x1b" not in table.output
    assert [(one["group"], one["name"], one["kind"]) for one in objects] == [
        ("validation", "words[0]", "text"),
        ("validation", "words[1]", "text"),
        (HOSTILE, HOSTILE, "text"),
        (HOSTILE, "..", "text"),
        ("validation", "counts", "histogram"),
    ]
    assert len(rows) == 4
    assert "Media" in cli("trial", "describe", "1").output
    assert "<text>" in cli("trial", "metrics", "1", "--group", "validation").output


@pytest.mark.usefixtures("trial")
def test_files_get_names_that_are_harmless(cli: Cli, tmp_path: Path) -> None:
    """Downloaded files stay in the directory, whatever the metrics are called."""
    written = cli("trial", "media", "1", "--download", str(tmp_path / "files"))

    assert sorted(path.name for path in (tmp_path / "files").iterdir()) == [
        "a_b_31m___step2.txt",
        "a_b_31m_a_b_31m_step2.txt",
        "validation_counts_step2.json",
        "validation_words_0_step1.txt",
        "validation_words_1_step1.txt",
    ]
    assert (tmp_path / "files" / "validation_words_1_step1.txt").read_text() == "two"
    assert len(written.output.splitlines()) == 5


def test_a_damaged_file_is_named_and_the_others_are_written(trial: Home, cli: Cli, tmp_path: Path) -> None:
    """A damaged file fails the command, but the other files are written."""
    broken = media.Text("one").file.name
    (trial.folder(1).media_path / broken).write_bytes(b"other")

    ended = cli("trial", "media", "1", "--download", str(tmp_path / "files"))

    assert ended.status == 1
    assert broken in ended.errors
    assert len(list((tmp_path / "files").iterdir())) == 4


def test_a_trial_without_media_says_so(home: Home, cli: Cli) -> None:
    """A trial without media says so, and an unknown kind is refused."""
    with core.init() as context:
        context.train.report_training_metrics(1, {"loss": 0.5})

    assert cli("trial", "media", "1").output == "No media yet.\n"
    assert "is none of image" in cli("trial", "media", "1", "--kind", "pictures").errors


@pytest.mark.usefixtures("home")
def test_media_of_event_files_are_listed_downloaded_and_reported(cli: Cli, tmp_path: Path) -> None:
    """Media in event files are treated like reported media."""
    with core.init(name="digits") as context, SummaryWriter(str(context.train.get_tensorboard_path())) as writer:
        writer.add_text("../words", "some words", 3)

    (listed,) = json.loads(cli("trial", "media", "1", "--json").output)
    cli("trial", "media", "1", "--download", str(tmp_path / "files"))
    cli("report", "digits", "-o", str(tmp_path / "report.html"))

    assert (listed["group"], listed["name"], listed["steps_completed"]) == ("tensorboard", "../words", 3)
    assert (tmp_path / "files" / "tensorboard_words_step3.txt").read_text() == "some words"
    assert "some words" in (tmp_path / "report.html").read_text()
