"""`core-sdk import`: runs of other trackers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from core_sdk._interfaces.cli._failures import ExitCode
from core_sdk._interfaces.cli._home import make_home
from core_sdk._interfaces.cli._messages import say


def import_runs(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A file or a folder, which is only read.")],
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The name of the experiment of the trials.", show_default="that of the tool"),
    ] = None,
) -> None:
    """Make trials of the runs of other trackers, with their curves, configurations and media.

    Reads event files of TensorBoard, folders of wandb's runs, stores of MLflow (mlruns/ or an SQLite database) and
    databases of trackio, also several of them below one folder. A run that was imported before is left out.
    """
    from core_sdk._analysis.exchange.kinds import find_runs
    from core_sdk._analysis.exchange.processes import import_runs as imported

    runs = find_runs(path)
    counts = {"taken": 0, "known": 0, "empty": 0}
    has_losses = False
    for run, trial_id, fate in imported(make_home(), path, runs, name):
        counts[fate] += 1
        if trial_id is not None:
            typer.echo(f"{run.where} is trial {trial_id}")
        for loss in run.losses:
            say(f"{run.where}: {loss}")
        has_losses |= bool(run.losses)
    empty = f", {counts['empty']} hold nothing" if counts["empty"] else ""
    typer.echo(f"{counts['taken']} runs were imported, {counts['known']} were here already{empty}")
    if has_losses:
        raise typer.Exit(ExitCode.FAILURE)
