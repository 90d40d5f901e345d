"""The records of the home that the environment names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import click

from core_sdk._ground.environment import Environment
from core_sdk._home import Home
from core_sdk._home.opening import HomeElsewhere
from core_sdk._home.rows import TrialRow
from core_sdk._interfaces.cli._group import HOMES
from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.render.text import printable
from core_sdk.errors import SlurmError


def make_home(*, is_sent: bool = False) -> Home:
    """Returns the home, which is made if it is missing. Raises `HomeNotWritableError` or `HomeTooNewError`.

    `is_sent` says that the command has what it records sent to the workspace of `--workspace`.
    """
    if workspace() and not is_sent:
        words = "--workspace is for commands that list, show and steer; this one works in a home of your own"
        raise click.UsageError(words)
    return Home.create(Environment.read().home)


def open_home() -> Home:
    """Returns the home, the homes of `--homes`, or the workspace of `--workspace`. One that does not exist is empty.

    Raises `HomeTooNewError`. If the master was killed and is still needed, it is started again.
    """
    context = click.get_current_context(silent=True)
    if context is not None and (patterns := context.meta.get(HOMES)):
        if workspace():
            raise click.UsageError("give --homes or --workspace, not both")
        from core_sdk._home.folders.gathering import gathered_home  # which other commands do not need

        return gathered_home(patterns)
    if named := workspace():
        from core_sdk._workspace.asking import home_of_workspace  # requests, which other commands do not need

        return home_of_workspace(named)
    home = Home.open(Environment.read().home)
    go_on(home.root)
    return home


def open_home_of(trial_id: int) -> tuple[Home, int]:
    """Returns the home in which a command that starts or changes something does so, and the trial's number there.

    Of the homes of `--homes` it is the one that has the trial. Raises `HomesOnlyReadError` if that is somebody else's.
    """
    home, number = open_home().own("trial", trial_id)
    if number != trial_id:
        say(f"trial {trial_id} is trial {number} of the home {printable(home.location)}")
    return home, number


def workspace() -> str:
    """Returns the workspace of `core-sdk --workspace`; empty if there is none."""
    context = click.get_current_context(silent=True)
    return "" if context is None else str(context.find_root().params.get("workspace") or "")


def in_home(home: Home) -> str:
    """Returns the words that say which home has none of what was asked for, since its path may be mistyped."""
    if isinstance(home, HomeElsewhere):
        return f"in the workspace {printable(home.address)}"
    return f"in the home {printable(home.location)}"


def hear_of_slurm(home: Home, rows: Iterable[TrialRow]) -> bool:
    """Records which of these trials were canceled while they waited in Slurm's queue, as no job of theirs could.

    Returns whether there is one. Slurm is asked only if a trial waits there.
    """
    waiting = [row.trial_id for row in rows if row.state == "QUEUED" and row.try_id is None]
    if waiting and not isinstance(home, HomeElsewhere) and not home.is_gathered:
        from core_sdk._execution.slurm.following import waiting_jobs  # what few homes need

        with contextlib.suppress(SlurmError):  # it is not to be asked here, or not now
            return len(waiting_jobs(map(home.folder, waiting))) < len(waiting)
    return False


def go_on(home_root: Path, *, waits: bool = False) -> None:
    """Starts a master that was killed and is needed, like `revive_master`, or says once why it does not."""
    with contextlib.suppress(OSError):
        if not Home(home_root).master.exists():
            return
    from core_sdk._execution.experiments.reviving import note_told, revive_master  # what few homes need

    if told := revive_master(home_root, waits=waits):
        say(told)
        note_told(home_root)
