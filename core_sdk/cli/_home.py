"""The records of the home that the environment names."""

from __future__ import annotations

from pathlib import Path

from core_sdk.cli._arguments import parse_experiment
from core_sdk.cli._messages import say
from core_sdk.environment import Environment
from core_sdk.errors import ExperimentStateError
from core_sdk.experiments.reviving import note_told, revive_master
from core_sdk.tracking import Home, open_view


def make_home() -> Home:
    """Returns the home, which is made if it is missing. Raises `HomeNotWritableError` or `HomeTooNewError`."""
    return Home.create(Environment.read().home)


def open_home() -> Home:
    """Returns the home. One that does not exist is empty. Raises `HomeTooNewError`.

    If the master was killed and is still needed, it is started again.
    """
    home = Home.open(Environment.read().home)
    go_on(home.root)
    return home


def go_on(home_root: Path, *, waits: bool = False) -> None:
    """Starts a master that was killed and is needed, like `revive_master`, or says once why it does not."""
    if told := revive_master(home_root, waits=waits):
        say(told)
        note_told(home_root)


def submitted_id(text: str) -> int:
    """Returns the id of the submitted experiment that is given by its id or its name.

    Raises `ExperimentNotFoundError`, `AmbiguousNameError`, or `ExperimentStateError` if it was not submitted.
    """
    home = open_home()
    number = parse_experiment(text)
    if isinstance(number, str):
        with open_view(home) as view:
            number = view.experiment(number).experiment_id
    if not home.experiment(number).read().is_submitted:
        problem = "was not submitted, and has no searcher: what concerns its trials is under `core-sdk trial`"
        raise ExperimentStateError(number, problem)
    return number
