"""The commands of `core-sdk`, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from core_sdk._version import __version__
from core_sdk.cli import _checkpoint_commands, _experiment_commands, _index_commands, _run_command, _trial_commands
from core_sdk.cli._group import command_group

_EPILOG = """Exit status: 0 done; 1 failed, or a check found damage; 2 wrong usage; 3 what was named (a trial, an
experiment, a checkpoint, an attempt, a group) does not exist; 75 the trial was stopped and is to be continued; 126 or
127 the command cannot be executed or is not there; 130 the trial was canceled by Ctrl-C. run, trial resume and trial
continue otherwise exit as the script did, with 128 + N when signal N killed it."""

app = command_group(
    "Runs training scripts, and shows, continues and removes what they recorded in the home (CORE_SDK_HOME).", _EPILOG
)
_run_command.register(app)
app.add_typer(_trial_commands.app, name="trial")
app.add_typer(_checkpoint_commands.app, name="checkpoint")
app.add_typer(_experiment_commands.app, name="experiment")
app.add_typer(_index_commands.app, name="index")


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"core-sdk {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None: ...
