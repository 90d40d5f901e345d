"""`core-sdk master …`."""

from __future__ import annotations

from typing import Annotated

import typer

from core_sdk.cli._failures import ExitCode
from core_sdk.cli._group import command_group
from core_sdk.cli.master.status import read_status
from core_sdk.cli.render.output import AsJson, print_one
from core_sdk.cli.ui import ui
from core_sdk.environment import Environment
from core_sdk.experiments.protocol import MasterStatus

app = command_group()


@app.command()
def up(
    slots: Annotated[
        int | None,
        typer.Option(min=1, help="Places on the CPU for trials.", show_default="all GPUs; without any, all CPUs"),
    ] = None,
    with_ui: Annotated[
        bool, typer.Option("--ui", help="Then serve the web page, as `core-sdk ui` does, until Ctrl-C.")
    ] = False,
) -> None:
    """Start the master, which stays until `core-sdk master down`.

    Commands that need a master start one themselves, which ends when it has had nothing to do for a minute.
    """
    from core_sdk.errors import MasterRefusedError
    from core_sdk.experiments.calling import call, is_master_running
    from core_sdk.experiments.protocol import GetStatus

    home = Environment.read().home
    if is_master_running(home):
        raise MasterRefusedError("it runs already. `core-sdk master status` shows it, `core-sdk master down` ends it")
    options = ["--stay", *([] if slots is None else [f"--slots={slots}"])]
    typer.echo(_describe(call(home, GetStatus(), options=options)))
    if with_ui:
        ui()


@app.command()
def status(as_json: AsJson = False) -> None:
    """Show the master, its slots and its experiments."""
    found = read_status()
    if found is not None and not isinstance(found, MasterStatus):
        raise typer.Exit(ExitCode.FAILURE)  # `read_status` has said that it does not answer
    print_one(found or {}, {"Master": _describe(found) if found else "none runs"}, as_json)


@app.command()
def down() -> None:
    """End the master. Trials that run go on, and the next master finds them."""
    from core_sdk.experiments.calling import await_end_of_master, call_running
    from core_sdk.experiments.protocol import Down

    home = Environment.read().home
    if call_running(home, Down()) is None:
        typer.echo("no master runs")
        return
    await_end_of_master(home)
    typer.echo("the master has ended")


def _describe(found: MasterStatus) -> str:
    devices = "GPUs" if found.gpus else "places on the CPU"
    here = [experiment for experiment in found.experiments if not experiment.cluster]
    num_used = sum(len(trial.slots) for experiment in here for trial in experiment.running)
    return (
        f"process {found.pid}, version {found.version}: {num_used} of {found.num_slots} {devices} in use, "
        f"{len(found.experiments)} experiments that have not ended"
    )
