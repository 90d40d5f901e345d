"""Programs, and models that pay by the token, read as much of an answer as they want."""

from __future__ import annotations

import csv
import io
import json
import time

import pytest
from interfaces.cli.commands import Cli
from interfaces.cli.recorded import new_attempt, new_trial

from core_sdk._home import Home
from core_sdk._interfaces.render.fields import parse_fields, take
from core_sdk._interfaces.render.output import LIMIT


@pytest.fixture
def two_trials(home: Home) -> None:
    """Trials with a metric whose name has a dot."""
    for number in (1, 2):
        training = new_attempt(new_trial(home, hparams={"lr": number / 10}))
        training.report(1, "validation", **{"loss": float(number), "top.1": 0.5})
        training.end("completed")


def test_a_dot_leads_into_an_object_or_is_part_of_a_name() -> None:
    """The longest key that fits is taken; a part that a record lacks is None, and an unknown first part is refused."""
    record = {"id": 1, "metrics": {"validation": {"top.1": 0.5, "top": {"1": 0.25, "5": 0.75}}}, "reason": None}

    assert take(record, ["id", "metrics.validation.top.1", "metrics.validation.top.5"]) == {
        "id": 1,
        "metrics.validation.top.1": 0.5,
        "metrics.validation.top.5": 0.75,
    }
    assert take(record, ["metrics.training.loss", "reason.why"]) == {"metrics.training.loss": None, "reason.why": None}
    assert take({}, ["id"]) == {"id": None}
    with pytest.raises(ValueError, match=r"'metric\.x'.*There are: id, metrics, reason"):
        take(record, ["metric.x"])
    assert parse_fields("b, a.c,b") == ("b", "a.c")
    with pytest.raises(ValueError, match="empty"):
        parse_fields("a,,b")


@pytest.mark.usefixtures("two_trials")
def test_only_the_fields_that_were_asked_for_are_printed(cli: Cli) -> None:
    """Lists, descriptions and reports have these fields, as JSON or as CSV; an unknown name is refused."""
    listed = json.loads(cli("trial", "list", "--fields", "trial_id,hparams.lr,metrics.validation.top.1").output)
    rows = list(csv.reader(io.StringIO(cli("trial", "list", "--csv", "--fields", "name,hparams.lr").output)))
    described = json.loads(cli("trial", "describe", "2", "--fields", "state").output)
    reports = json.loads(cli("trial", "metrics", "1", "--fields", "steps_completed,metrics.loss").output)
    of_reports = cli("trial", "metrics", "1", "--csv", "--fields", "steps_completed,metrics.loss").output
    experiments = json.loads(cli("experiment", "list", "--fields", "num_trials").output)

    assert listed == [
        {"trial_id": 1, "hparams.lr": 0.1, "metrics.validation.top.1": 0.5},
        {"trial_id": 2, "hparams.lr": 0.2, "metrics.validation.top.1": 0.5},
    ]
    assert rows[0] == ["name", "hparams.lr"]
    assert [row[1] for row in rows[1:]] == ["0.1", "0.2"]
    assert described == {"state": "COMPLETED"}
    assert reports == [{"steps_completed": 1, "metrics.loss": 1.0}]
    assert of_reports == "steps_completed,metrics.loss\n1,1.0\n"
    assert experiments == [{"num_trials": 2}]
    for asked in (("trial", "list"), ("trial", "list", "--csv"), ("trial", "describe", "1"), ("trial", "metrics", "1")):
        refused = cli(*asked, "--fields", "stat")
        assert refused.status == 2
        assert "there is no field 'stat'" in " ".join(refused.errors.split())
        assert not refused.output


@pytest.mark.usefixtures("two_trials")
def test_what_is_older_than_a_time_is_left_out(home: Home, cli: Cli) -> None:
    """Trials that run are new, and so is what ended, was created or was reported since then."""
    new_attempt(new_trial(home))
    later = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 3600))

    def ids(since: str) -> list[int]:
        return [one["trial_id"] for one in json.loads(cli("trial", "list", "--json", "--since", since).output)]

    assert ids("2001-01-01") == [1, 2, 3]
    assert ids("1h") == [3]
    assert ids(later) == [3]
    assert json.loads(cli("trial", "metrics", "1", "--json", "--since", later).output) == []
    assert json.loads(cli("experiment", "list", "--json", "--since", later).output) == []
    assert json.loads(cli("checkpoint", "list", "--json", "--since", "2d").output) == []
    assert "neither a time ago" in " ".join(cli("trial", "list", "--since", "yesterday").errors.split())


def test_a_table_that_no_terminal_shows_is_bounded(home: Home, cli: Cli) -> None:
    """The newest rows are shown, and stderr says how many there are; JSON and CSV are whole unless there is a limit."""
    for _ in range(LIMIT + 2):
        new_trial(home)

    shown = cli("trial", "list")
    every = cli("trial", "list", "--limit", "0").output.splitlines()
    ordered = json.loads(cli("trial", "list", "--sort", "id", "--limit", "2", "--fields", "trial_id").output)

    assert len(every) == len(shown.output.splitlines()) + 2
    assert shown.errors == f"core-sdk: these are the newest {LIMIT} of {LIMIT + 2}; --limit 0 shows all\n"
    assert len(json.loads(cli("trial", "list", "--json").output)) == LIMIT + 2
    assert [one["trial_id"] for one in ordered] == [1, 2]
    assert cli("trial", "list", "-q", "--limit", "2").output.split() == [str(LIMIT + 1), str(LIMIT + 2)]
    assert len(cli("trial", "list", "-q").output.split()) == LIMIT + 2
