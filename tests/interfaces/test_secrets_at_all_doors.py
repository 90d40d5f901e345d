"""A secret that a user gave as a hyperparameter, in a URL or in a command is shown and exported by no door."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from interfaces.cli.recorded import new_attempt, new_trial, store
from interfaces.server.visitor import Visitor

from core_sdk import client
from core_sdk._analysis.reports.document import report_html
from core_sdk._ground.config import from_mapping, to_mapping
from core_sdk._ground.environment import recorded_variables
from core_sdk._ground.records import CommandRecord, ExperimentBegun, SearchRecord, SubmissionRecord
from core_sdk._home import Home
from core_sdk._home.journal import encode_line
from core_sdk._interfaces.cli._app import app
from core_sdk._interfaces.server.routes.table import ROUTES

SECRET = "hunter2x"
HPARAMS = {
    "lr": 0.1,
    "api_key": SECRET,
    "hub": {"token": SECRET, "mirror": f"https://me:{SECRET}@host/models"},
    "urls": [f"s3://bucket/data?X-Amz-Signature={SECRET}"],
}
COMMAND = [
    "python",
    "train.py",
    "--api-key",
    SECRET,
    f"--hub.token={SECRET}",
    "--db",
    f"postgres://me:{SECRET}@host/db",
]
CONFIG = {
    "name": "search",
    "entrypoint": COMMAND,
    "searcher": {"name": "random", "metric": "loss", "max_trials": 1},
    "hyperparameters": {"api_key": {"type": "categorical", "vals": [SECRET, "other"]}, "db": f"redis://:{SECRET}@host"},
    "data": {"secrets": {"x": SECRET}, "url": f"https://me:{SECRET}@host"},
    "checkpoint_storage": {"type": "s3", "bucket": "b", "access_key": "a", "secret_key": SECRET},
    "environment": {"environment_variables": [f"WANDB_API_KEY={SECRET}"]},
}


@pytest.fixture
def recorded(home: Home) -> Home:
    """A search and its trial, and a variation of that, all with secrets."""
    for parent in (None, 1):
        folder = new_trial(home, experiment="search", hparams={**HPARAMS, "lr": 0.1 if parent is None else 0.2})
        folder.write_record(msgspec.structs.replace(folder.read_record(), parent=parent, hypothesis="more"))
        folder.write_command(CommandRecord(argv=COMMAND, cwd="/", environment={}))
        training = new_attempt(folder)
        training.report(1, loss=0.5)
        training.report(1, "validation", loss=0.5)
        store(training, f"saved-{folder.trial_id}", 1)
        training.end("error", f"Traceback:\nConnectionError: no answer from postgres://me:{SECRET}@host/db")
    experiment = home.experiment(1)
    with experiment.edit() as record:
        record.is_submitted = True
        record.search = SearchRecord(searcher="random", state="COMPLETED", num_trials=1)
    experiment.write_submission(SubmissionRecord(cwd="/"))
    experiment.write_config(to_mapping(from_mapping(CONFIG).config))
    experiment.events_path.write_bytes(encode_line(ExperimentBegun(time=1.0, format=1)))
    return home


def printed(*arguments: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        app(arguments, standalone_mode=False)
    return output.getvalue()


COMMANDS = [
    "trial list --json",
    "trial list --csv --column hparams.api_key --column hparams.hub.token --column hparams.hub.mirror",
    "trial list --column hparams.urls",
    "trial describe 1",
    "trial describe 1 --json",
    "compare 1 2",
    "compare 1 2 --json",
    "trial evidence 2",
    "trial evidence 2 --json",
    "trial tree --json",
    "experiment list --json",
    "experiment describe 1",
    "experiment describe 1 --json",
    "experiment config 1",
    "experiment config 1 --json",
    "experiment best 1 --metric loss",
    "checkpoint list --json",
    "checkpoint describe saved-1",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_prints_it(recorded: Home, command: str) -> None:
    """Tables, JSON, CSV, evidence and configurations of the command line have masks."""
    assert SECRET not in printed(*command.split())


def test_the_page_never_gets_it(recorded: Home) -> None:
    """No answer of the server has it, whatever route is asked."""
    visitor = Visitor(recorded)
    names = {"trial_id": "1", "experiment_id": "1", "storage_id": "saved-1", "model_id": "1", "file_name": "x"}
    answers = {}
    for route in ROUTES:
        if route.method == "GET":
            path = re.sub(r"{(\w+)}", lambda match: names[match[1]], route.path)
            answers[path] = visitor.get(f"/api/v1{path}")
    names_of_values = ("hparams.api_key", "hparams.hub.mirror", "hparams.urls", "hparams.hub.token")
    listed = [visitor.question("/runs", columns=name) for name in names_of_values]
    visitor.close()

    assert [path for path, answer in answers.items() if SECRET.encode() in answer.content] == []
    assert SECRET not in json.dumps(listed) and "********" in json.dumps(listed)
    assert answers["/trials/1"].status == answers["/experiments/1/configuration"].status == 200


def test_no_file_and_no_notebook_shows_it(recorded: Home, tmp_path: Path) -> None:
    """A report, a table of SQL, a frame and what a notebook prints have masks; a program gets what was given."""
    trial, frame = client.Tracker(recorded.root).get_trial(1), client.Tracker(recorded.root).get_experiment(1)

    shown = [report_html(recorded, 1), repr(trial), trial._repr_html_(), str(frame.trials_frame())]
    if importlib.util.find_spec("duckdb"):
        shown.append(printed("sql", "--json", "select * from hparams"))

    assert [text for text in shown if SECRET in text] == []
    assert trial.hparams == HPARAMS


def test_the_recorded_environment_has_none() -> None:
    """Of the variables of a training, those with secrets are not even recorded."""
    variables = {"NCCL_API_KEY": SECRET, "DS_TOKEN": SECRET, "PYTHONPATH": f"https://me:{SECRET}@host"}

    assert recorded_variables(variables) == {}


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("COLUMNS", "300")
    yield
