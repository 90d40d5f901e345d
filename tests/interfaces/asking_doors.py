"""Asks every door for fields of a trial. It runs in a process whose `core_sdk` declares more fields than this one.

    python -m interfaces.asking_doors HOME '{"NAME": VALUE, …}'

It records the values, and prints a JSON object: by name, what each door knows of the field.
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

from home.journals import new_trial, record, report
from interfaces.server.visitor import Visitor

from core_sdk._ground.records import TrialDescribed
from core_sdk._home import Home, open_view
from core_sdk._interfaces.cli._app import app


def record_fields(home: Home, values: dict[str, Any]) -> None:
    """Makes a trial with these values: those of `trial.json` there, and all others by a line of its journal."""
    folder = new_trial(home)
    record(folder, report(1, loss=1.0))
    trial = folder.read_record()
    told = {name: value for name, value in values.items() if not hasattr(trial, name)}
    for name in values.keys() - told:
        setattr(trial, name, values[name])
    folder.write_record(trial)
    folder.append_change(TrialDescribed(time=time.time(), **told))


def ask_doors(home: Home, visitor: Visitor, name: str) -> dict[str, Any]:
    with open_view(home) as view:
        value = getattr(view.trial(1), name)
    condition = f"{name} = {value}"
    listed = ("trial", "list", "--column", name, "--where", condition, "--sort", name)
    return {
        "row": value,
        "json": json.loads(_printed(*listed, "--json"))[0][name],
        "csv": _printed(*listed, "--csv").splitlines()[0].split(","),
        "table": _printed(*listed).splitlines()[0].split(),
        "describe": _printed("trial", "describe", "1"),
        "sql": _ask_in_sql(name) if importlib.util.find_spec("duckdb") else value,
        "server": visitor.question("/trials/1")["trial"][name],
        "page": [one for one in visitor.question("/columns")["columns"] if one["name"] == name],
        "cells": visitor.question("/runs", columns=name, where=condition, sort=name)["rows"],
    }


def _ask_in_sql(name: str) -> Any:
    return json.loads(_printed("sql", "--json", f"select {name} from trials"))[0][name]


def _printed(*arguments: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        app(arguments, standalone_mode=False)
    return printed.getvalue()


def main(home: Home, values: dict[str, Any]) -> None:
    record_fields(home, values)
    visitor = Visitor(home)
    print(json.dumps({name: ask_doors(home, visitor, name) for name in values}))
    visitor.close()


if __name__ == "__main__":
    main(Home(Path(sys.argv[1])), json.loads(sys.argv[2]))
