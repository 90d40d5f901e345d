"""`core-sdk trial time`, `experiment time` and `home time`."""

from __future__ import annotations

import json

from home.journals import START, new_trial, record
from interfaces.cli.commands import Cli

from core_sdk._ground.records import ExitRecord, Report
from core_sdk._home import Home


def write_trial(home: Home) -> None:
    folder = new_trial(home)
    begun = START + 1000
    record(folder, *(Report(begun + 10 * step, "training", step, {"loss": 0.5}) for step in range(1, 10)))
    folder.write_exit(1, ExitRecord(time=begun + 100.25, code=0))


def test_a_table_shows_the_phases_and_their_sum(home: Home, cli: Cli) -> None:
    write_trial(home)

    shown = cli("trial", "time", "1")

    lines = [line.split() for line in shown.output.splitlines()]
    assert ["training", "00:01:40.250", "9.1%"] in lines
    assert ["starting", "00:16:40.000", "90.9%"] in lines
    assert ["all", "00:18:20.250"] in lines
    assert shown.output.endswith("9.1 % training; 91 % starting\n")


def test_json_has_milliseconds(home: Home, cli: Cli) -> None:
    """The phases of an experiment and of a home are those of their trials together."""
    write_trial(home)
    write_trial(home)

    told = [
        json.loads(cli(*command, "--json").output)
        for command in (("trial", "time", "1"), ("experiment", "time", "digits"), ("home", "time"))
    ]

    assert [each["wall_ms"] for each in told] == [1_100_250, 2_200_500, 2_200_500]
    assert [each["num_trials"] for each in told] == [1, 2, 2]
    assert all(sum(each["phases_ms"].values()) == each["wall_ms"] for each in told)


def test_a_trial_that_is_not_there_has_no_time(home: Home, cli: Cli) -> None:
    Home.create(home.root)

    assert "trial 7" in cli("trial", "time", "7").errors
