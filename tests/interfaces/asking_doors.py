"""Asks every door for five fields, in a process whose `core_sdk` declares them.

    python -m interfaces.asking_doors HOME

It records a value of each, and prints a JSON object: by the name of the field, what each door knows of it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
from home.journals import new_trial, record, report, stored
from interfaces.server.visitor import Visitor

from core_sdk._ground.records import TrialDescribed
from core_sdk._home import Home, open_view
from core_sdk._interfaces.cli._app import app

BUDGET, REVIEWER, SPONSOR, DIGEST, TOKENS = 2.5, "Ada", "Grace", "f00d", 4096


def record_values(home: Home) -> None:
    folder = new_trial(home)
    reported = msgspec.structs.replace(report(1, loss=1.0), tokens=TOKENS)
    record(folder, reported, msgspec.structs.replace(stored("c1", 1), digest=DIGEST))
    folder.write_record(msgspec.structs.replace(folder.read_record(), budget=BUDGET))
    folder.append_change(msgspec.structs.replace(TrialDescribed(time=time.time()), reviewer=REVIEWER))
    experiment = home.experiment(1)
    experiment.write(msgspec.structs.replace(experiment.read(), sponsor=SPONSOR))


def ask_of_trials(home: Home, visitor: Visitor, name: str) -> dict[str, Any]:
    with open_view(home) as view:
        value = getattr(view.trial(1), name)
    condition = f"{name} = {value}"
    listed = ("trial", "list", "--column", name, "--where", condition, "--sort", name)
    return {
        "values": [
            value,
            json.loads(_printed(*listed, "--json"))[0][name],
            visitor.question("/trials/1")["trial"][name],
            *visitor.question("/runs", columns=name, where=condition, sort=name)["rows"][0],
            *_in_sql("trials", name),
        ],
        "csv": _printed(*listed, "--csv").splitlines()[0].split(","),
        "table": _printed(*listed).splitlines()[0].split(),
        "described": _printed("trial", "describe", "1"),
        "page": [one["title"] for one in visitor.question("/columns")["columns"] if one["name"] == name],
    }


def ask_of_experiments(visitor: Visitor, name: str) -> dict[str, Any]:
    (answered,) = visitor.question("/experiments", where=f"{name} = {SPONSOR}", sort=name)["experiments"]
    (listed,) = json.loads(_printed("experiment", "list", "--json"))
    values = [listed[name], answered[name], *_in_sql("experiments", name)]
    return {"values": values, "described": _printed("experiment", "describe", "1")}


def ask_of_checkpoints(visitor: Visitor, name: str) -> dict[str, Any]:
    (answered,) = visitor.question("/checkpoints", trial=1)["checkpoints"]
    (listed,) = json.loads(_printed("checkpoint", "list", "--json"))
    values = [listed[name], answered[name], *_in_sql("checkpoints", name)]
    return {"values": values, "described": _printed("checkpoint", "describe", "c1")}


def ask_of_reports(name: str) -> dict[str, Any]:
    return {"values": [one[name] for one in json.loads(_printed("trial", "metrics", "1", "--json"))]}


def _in_sql(table: str, name: str) -> list[Any]:
    if not importlib.util.find_spec("duckdb"):
        return []
    return [row[name] for row in json.loads(_printed("sql", "--json", f"select {name} from {table}"))]


def _printed(*arguments: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        app(arguments, standalone_mode=False)
    return printed.getvalue()


def main(home: Home) -> None:
    record_values(home)
    visitor = Visitor(home)
    answers = {
        "budget": ask_of_trials(home, visitor, "budget"),
        "reviewer": ask_of_trials(home, visitor, "reviewer"),
        "sponsor": ask_of_experiments(visitor, "sponsor"),
        "digest": ask_of_checkpoints(visitor, "digest"),
        "tokens": ask_of_reports("tokens"),
    }
    visitor.close()
    print(json.dumps(answers))


if __name__ == "__main__":
    main(Home(Path(sys.argv[1])))
