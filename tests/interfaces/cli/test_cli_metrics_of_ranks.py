"""`core-sdk trial metrics --rank` shows what ranks other than 0 have reported."""

from __future__ import annotations

import json
from typing import IO

import pytest
from home.journals import append, lines, new_trial, record, report, started
from interfaces.cli.commands import Cli, StartCli
from processes import Script

from core_sdk._ground.alive import AliveLock
from core_sdk._home import Home, TrialFolder


@pytest.fixture
def folder(home: Home) -> TrialFolder:
    """Both ranks report the loss; only rank 1 validates."""
    folder = new_trial(home)
    record(folder, report(1, loss=0.5), report(2, loss=0.25))
    record(folder, report(1, loss=5.5), report(2, "validation", accuracy=0.75), rank=1)
    return folder


def test_the_lowest_rank_is_shown_and_the_others_are_mentioned(folder: TrialFolder, cli: Cli) -> None:
    """The lowest rank of each metric is shown, and a note lists the ranks that have reported."""
    ended = cli("trial", "metrics", "1")
    as_json = cli("trial", "metrics", "1", "--json")

    assert "5.5" not in ended.output
    assert "accuracy" in ended.output
    assert "rank 0, rank 1 have reported; of each metric the first of them is shown" in ended.errors
    assert as_json.errors == "", "each row names its rank"
    assert [(row["rank"], row["metrics"]) for row in json.loads(as_json.output)] == [
        (0, {"loss": 0.5}),
        (0, {"loss": 0.25}),
        (1, {"accuracy": 0.75}),
    ]


def test_one_rank_or_all_can_be_asked_for(folder: TrialFolder, cli: Cli) -> None:
    """--rank selects one rank or all, in every form of output and together with --group and --metric."""
    of_1 = cli("trial", "metrics", "1", "--rank", "1", "--group", "training")
    of_all = cli("trial", "metrics", "1", "--rank", "all", "--csv", "--metric", "loss")

    assert "5.5" in of_1.output
    assert "Rank" in of_1.output
    assert "0.25" not in of_1.output
    assert of_1.errors == ""
    assert [line.split(",")[2] for line in of_all.output.splitlines()[1:]] == ["0", "1", "0"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--rank", "7"], "rank 7 of trial 1 has reported nothing. Who has reported: 0, 1."),
        (["--rank", "0", "--group", "validation"], "rank 0 of trial 1 has reported nothing in group 'validation'."),
        (["--rank", "0", "--metric", "accuracy"], "accuracy"),
        (["--rank", "one"], "writer one of trial 1 has reported nothing. Who has reported: 0, 1."),
        (["--rank", str(1 << 63)], "9223372036854775808"),
        (["--rank", "1", "--plot"], "--plot draws all reports that count"),
    ],
)
def test_a_rank_without_reports_is_a_mistake_that_is_named(
    folder: TrialFolder, cli: Cli, options: list[str], words: str
) -> None:
    """A rank without reports is an error that lists the ranks with reports."""
    ended = cli("trial", "metrics", "1", *options)

    assert ended.status != 0
    assert words in " ".join(ended.errors.split())


def output_of(script: Script) -> IO[str]:
    assert script.process.stdout is not None
    return script.process.stdout


def test_ranks_are_followed(home: Home, start_cli: StartCli) -> None:
    """--follow also prints reports of a rank whose journal appears later."""
    folder = new_trial(home)
    append(folder, 1, lines(started(folder), report(1, loss=0.5)))
    alive = AliveLock(folder.alive_path(1))
    command = ("trial", "metrics", "1", "--follow", "--json")
    shown, of_all = start_cli(*command), start_cli(*command, "--rank", "all")
    try:
        firsts = [output_of(following).readline() for following in (shown, of_all)]
        record(folder, report(1, loss=5.0), report(2, "validation", accuracy=0.75), rank=1)
        second = output_of(shown).readline()
    finally:
        alive.release()

    loss, of_rank_1, accuracy = (0, {"loss": 0.5}), (1, {"loss": 5.0}), (1, {"accuracy": 0.75})
    assert [told(line) for line in (firsts[0], second, *output_of(shown))] == [loss, accuracy]
    assert [told(line) for line in (firsts[1], *output_of(of_all))] == [loss, of_rank_1, accuracy]


def told(line: str) -> tuple[int, dict[str, float]]:
    row = json.loads(line)
    return row["rank"], row["metrics"]
