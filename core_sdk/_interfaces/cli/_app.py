"""The command `core-sdk`. A group of commands is loaded when one of its commands is asked for."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from core_sdk._ground.version import __version__
from core_sdk._interfaces.cli._command_after_dashes import CommandAfterDashes
from core_sdk._interfaces.cli._group import MEANT, LazyGroup, command_group
from core_sdk._interfaces.cli.agents import mcp
from core_sdk._interfaces.cli.compare import compare
from core_sdk._interfaces.cli.exchange.check_wandb import check_wandb
from core_sdk._interfaces.cli.exchange.commands import export, import_runs, sql
from core_sdk._interfaces.cli.preview_search import preview_search
from core_sdk._interfaces.cli.report import report
from core_sdk._interfaces.cli.running.check_resume import check_resume
from core_sdk._interfaces.cli.running.run import run
from core_sdk._interfaces.cli.running.submit import submit
from core_sdk._interfaces.cli.ui import ui

_EPILOG = """Exit status: 0 done; 1 failed, or a check found damage; 2 wrong usage; 3 what was named (a trial, an
experiment, a checkpoint, an attempt, a group) does not exist; 74 the trial was stopped, its save has failed, and an
earlier checkpoint is there; 75 the trial was stopped and can be resumed; 126 or 127 the command cannot be executed or
does not exist; 130 the trial was canceled by Ctrl-C. run, trial resume and trial continue otherwise exit as the script
did, with 128 + N when signal N killed it.

Documentation: https://github.com/core-sdk/core-sdk/tree/main/docs"""


class _Root(LazyGroup):
    subgroups = {
        "trial": (
            "core_sdk._interfaces.cli.trial.commands:app",
            "(t) Trials: one training with one set of hyperparameters.",
        ),
        "checkpoint": (
            "core_sdk._interfaces.cli.checkpoint.commands:app",
            "(c) Checkpoints: files and metadata under one id.",
        ),
        "experiment": (
            "core_sdk._interfaces.cli.experiment.commands:app",
            "(e) Experiments: trials that share a configuration, or a name.",
        ),
        "model": (
            "core_sdk._interfaces.cli.model.commands:app",
            "(m) Models: checkpoints that are kept under a name and a number.",
        ),
        "master": (
            "core_sdk._interfaces.cli.master.commands:app",
            "The master: the process that runs a home's experiments.",
        ),
        "slot": (
            "core_sdk._interfaces.cli.master.commands:slot_app",
            "Slots: the GPUs, or places on the CPU, that trials run on.",
        ),
        "queue": ("core_sdk._interfaces.cli.master.commands:queue_app", "The queue: which experiment gets slots next."),
        "skill": ("core_sdk._interfaces.cli.agents:skill_app", "A page for coding agents: how to use these commands."),
        "home": ("core_sdk._interfaces.cli.home.commands:app", "The home: the folder that holds all records."),
        "index": (
            "core_sdk._interfaces.cli.home.commands:index_app",
            "The index: a database that answers faster than the journals.",
        ),
    }
    _FIRST = ("trial", "experiment", "master")

    def _meant(self, ctx: Any, typed: str) -> str | None:
        """Returns the command that is meant, also one of a group that was left out."""
        words = [(name, word) for name in self._FIRST for word in (typed, *MEANT.get(typed, ()))]
        of_groups = [f"{name} {word}" for name, word in words if self.get_command(ctx, name).get_command(ctx, word)]
        of_trials = [each for each in of_groups if each.startswith("trial ")]
        return next(iter(of_trials), None) or super()._meant(ctx, typed) or next(iter(of_groups), None)

    short_forms = {"t": "trial", "c": "checkpoint", "e": "experiment", "m": "model", "job": "queue"}


app = command_group(
    "Runs training scripts, and shows, continues and removes what they recorded in the home (CORE_SDK_HOME).",
    epilog=_EPILOG,
    cls=_Root,
)
app.command(cls=CommandAfterDashes)(run)
app.command(cls=CommandAfterDashes)(submit)
app.command(cls=CommandAfterDashes)(check_resume)
app.command()(check_wandb)
app.command()(compare)
app.command()(export)
app.command("import")(import_runs)
app.command()(preview_search)
app.command()(report)
app.command()(sql)
app.command()(ui)
app.command()(mcp)


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
