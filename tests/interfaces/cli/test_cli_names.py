"""The command names that people know from Determined, and names that are nearly right."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from interfaces.cli.commands import Cli, WriteScript
from interfaces.cli.recorded import new_attempt, new_trial, store

from core_sdk._execution.steering import models, trials
from core_sdk._home import Home
from core_sdk._interfaces.cli._app import app
from core_sdk.errors import ExperimentError


@pytest.mark.parametrize(
    "arguments",
    [
        "trial ls",
        "t ls",
        "e ls",
        "e list-trials 1",
        "e lt 1",
        "e list-checkpoints 1",
        "e lc 1",
        "c ls",
        "m list",
        "job list",
        "job ls",
        "e describe 1,2",
        "t describe 1 --metrics",
        "e label add 1 new",
        "e label remove 1 new",
        "t rm 1 --yes",
        "c rm a --yes",
        "e rm 2 -y",
    ],
)
def test_short_and_old_names_of_commands_work(home: Home, cli: Cli, arguments: str) -> None:
    """Short names and the predecessor's names of commands work."""
    training = new_attempt(new_trial(home))
    training.report(1, "validation", loss=0.5)
    store(training, "a", 1)
    training.end()
    new_attempt(new_trial(home, experiment="second")).end()

    ended = cli(*arguments.split())

    assert ended.status == 0, ended.errors


def test_several_experiments_are_described_at_once(home: Home, cli: Cli) -> None:
    """Several experiments, separated by commas, are described at once; --json gives a list."""
    for name in ("first", "second"):
        new_attempt(new_trial(home, experiment=name)).end()

    described = cli("e", "describe", "1,2")
    as_json = cli("e", "describe", "1,2", "--json")

    assert [described.output.count(name) for name in ("first", "second")] >= [1, 1]
    assert [each["name"] for each in json.loads(as_json.output)] == ["first", "second"]


def test_labels_are_added_by_the_old_words(home: Home, cli: Cli) -> None:
    """`label add ID LABEL` and `label remove ID LABEL`."""
    new_attempt(new_trial(home)).end()

    added = cli("e", "label", "add", "1", "good")
    removed = cli("e", "label", "remove", "1", "good")

    assert (added.output, removed.output) == ("labels of experiment 1: good\n", "labels of experiment 1: none\n")


def test_a_name_and_notes_of_the_command_line_have_precedence(home: Home, cli: Cli, write_script: WriteScript) -> None:
    """Name and notes of the command line win, labels add up, and a continued trial inherits none of them."""
    script = write_script(
        """
        from core_sdk import core
        with core.init(trial_name="of the script", notes="of the script", labels=["script"]) as context:
            with context.checkpoint.store_path({"steps_completed": 1}) as (path, _):
                (path / "state").touch()
        """
    )
    given = ["--trial-name", "wide", "--notes", "Twice as *wide*.", "--label", "wide", "--label", "new"]

    ran = cli("run", *given, "--", sys.executable, str(script))
    continued = cli("trial", "continue", "1", "--trial-name", "wider")
    refused = cli("run", "--trial-name", "", "--", "true")

    assert (ran.status, continued.status) == (0, 0), ran.errors + continued.errors
    described = [json.loads(cli("trial", "describe", number, "--json").output) for number in ("1", "2")]
    assert [(each["name"], each["notes"], each["labels"]) for each in described] == [
        ("wide", "Twice as *wide*.", ["wide", "new", "script"]),
        ("wider", "of the script", ["script"]),
    ]
    assert home.experiment(1).read().labels == ["wide", "new", "script"]
    assert refused.status == 2
    assert "the trial's name" in refused.errors
    assert home.trial_ids() == [1, 2]


def test_a_checkpoint_of_a_trial_is_downloaded(home: Home, cli: Cli, tmp_path: Path) -> None:
    """`trial download` copies the best or latest checkpoint to the directory of an option."""
    training = new_attempt(new_trial(home))
    for step, loss in ((1, 0.1), (2, 0.9)):
        training.report(step, "validation", loss=loss)
        store(training, f"after-{step}", step)
    training.end()

    best = cli("t", "download", "1", "--best", "--metric", "loss", "-o", str(tmp_path / "best"))
    latest = cli("t", "download", "1", "-o", str(tmp_path / "latest"))
    by_id = cli("c", "download", "after-1", "-o", str(tmp_path / "by-id"))

    assert (best.status, latest.status, by_id.status) == (0, 0, 0), best.errors + latest.errors + by_id.errors
    steps = {name: json.loads((tmp_path / name / "metadata.json").read_text())["steps_completed"]
             for name in ("best", "latest", "by-id")}  # fmt: skip
    assert steps == {"best": 1, "latest": 2, "by-id": 1}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("trials list", "core-sdk trial"),
        ("experiments list", "core-sdk experiment"),
        ("trial show 1", "core-sdk trial describe"),
        ("trial remove 1", "core-sdk trial delete"),
        ("experiment unpause 1", "core-sdk experiment activate"),
        ("trial stop 1", "core-sdk trial pause"),
        ("trail list", "core-sdk trial"),
        ("trial lst", "core-sdk trial list"),
    ],
)
def test_what_was_probably_meant_is_said(cli: Cli, typed: str, meant: str) -> None:
    """Plural groups, synonyms and typing errors are answered with the command that was probably meant."""
    refused = cli(*typed.split())

    assert refused.status == 2
    assert f"Did you mean `{meant}`?" in refused.errors


def test_logs_are_cut_and_filtered(home: Home, cli: Cli) -> None:
    """Logs can be cut to their first lines and filtered by level."""
    folder = new_trial(home)
    new_attempt(folder).end()
    folder.log_path(1).write_text("INFO: one\nERROR: two\nWARNING: three\nfour\n")

    assert cli("t", "logs", "1", "--head", "2").output == "INFO: one\nERROR: two\n"
    assert cli("t", "logs", "1", "--level", "warning").output == "ERROR: two\nWARNING: three\n"
    assert cli("t", "logs", "1", "--level", "WARNING", "--tail", "1").output == "WARNING: three\n"
    assert cli("t", "logs", "1", "--level", "LOUD").status == 2
    lines = [json.loads(line) for line in cli("t", "logs", "1", "--json", "--tail", "2").output.splitlines()]
    assert [(line["attempt"], line["rank"], line["level"], line["text"]) for line in lines] == [
        (1, None, "WARNING", "WARNING: three"),
        (1, None, "INFO", "four"),
    ]


def commands(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields all commands below a group, each with its words."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        below = f"{path} {name}".strip()
        yield from commands(command, below) if hasattr(command, "list_commands") else [(below, command)]


def parsers(command: Any) -> dict[str, Callable[[str], object] | None]:
    """Returns the parser of each parameter that is called after a trial, an experiment, a checkpoint or a model."""
    hints = get_type_hints(command.callback, include_extras=True)
    infos = {name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")}
    named = re.compile(r"(trial|experiment|checkpoint|storage|model)(_ids?|s)?")
    return {name: info.parser for name, info in infos.items() if named.fullmatch(name)}


def test_a_name_stands_wherever_an_id_does(home: Home, cli: Cli) -> None:
    """Every argument and option that takes an id takes a name, too, or the first letters of a checkpoint's id."""
    new_attempt(new_trial(home, experiment="other")).end()
    training = new_attempt(new_trial(home))
    store(training, "a1b2", 1)
    training.end()
    trials.describe(home, 2, name="wide")
    models.create(home, "best")
    models.create(home, "net")
    told = {"trial": ("wide", 2), "experiment": ("digits", 2), "storage": ("A1", "a1b2"), "model": ("net", 2)}
    told["checkpoint"] = told["storage"]

    found = [(command, name, parser) for command, one in commands(app) for name, parser in parsers(one).items()]

    def parsed(parser: Callable[[str], object], text: str) -> object:
        try:
            return parser(text)
        except ExperimentError as error:  # the one that was found has not been submitted
            return error.experiment_id

    assert len(found) > 60
    for command, name, parser in found:
        text, expected = told[re.split("_|s$", name)[0]]
        if parser is not None:
            results = [parsed(parser, text), parsed(parser, str(expected))]
            assert results == [expected, expected], f"{command}: {name}"
    without = {(command, name) for command, name, parser in found if parser is None}
    assert without == {
        ("experiment describe", "experiment"),
        ("experiment label", "experiment"),
        ("notify add", "experiment"),  # also one that does not exist yet
    }
    for command in ("experiment describe digits", "experiment label digits new", "trial label wide new"):
        assert cli(*command.split()).status == 0, command
