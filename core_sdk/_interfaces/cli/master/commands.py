"""`core-sdk master …`, `core-sdk slot …` and `core-sdk queue …`."""

from __future__ import annotations

import contextlib
from typing import Annotated

import click

from core_sdk._execution.experiments.calling import await_end_of_master, call, call_running, is_master_running
from core_sdk._execution.experiments.protocol import Down, GetStatus, HomeStatus, MasterStatus
from core_sdk._execution.master.journaled import journaled_status
from core_sdk._execution.master.occupancy import OccupiedSlot, busy_gpus, occupied_slots, status_without_master
from core_sdk._execution.master.queued import Queued, homes_in_line, queue_of
from core_sdk._ground.environment import Environment
from core_sdk._home import Home
from core_sdk._interfaces.cli._arguments import AvoidBusy, slots_option
from core_sdk._interfaces.cli._failures import ExitCode
from core_sdk._interfaces.cli._group import command_group
from core_sdk._interfaces.cli._home import go_on, make_home, open_home
from core_sdk._interfaces.cli._ids import Experiment, experiment_option
from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.render.form import AsJson, Fields, choose_form
from core_sdk._interfaces.render.output import print_one, print_rows
from core_sdk._interfaces.render.tables import Column
from core_sdk._interfaces.signatures import Option
from core_sdk._machine.slots import SlotDirectory, clock, describe_line
from core_sdk.errors import CoreSDKError, MasterRefusedError, MasterSilentError

_NO_MASTER = "no master runs: `core-sdk master up` starts one"

app = command_group()
slot_app = command_group()
queue_app = command_group()


@app.command()
def up(
    slots: Annotated[
        int | None, slots_option("Places on the CPU for trials.", "all GPUs; without any, all CPUs")
    ] = None,
    avoid_busy: AvoidBusy = False,
    with_ui: Annotated[
        bool, Option("--ui", help="Then serve the web page, as `core-sdk ui` does, until Ctrl-C.")
    ] = False,
) -> None:
    """Start the master, which stays until `core-sdk master down`.

    Commands that need a master start one themselves, which ends when it has had nothing to do for a minute.
    """
    home = Environment.read().home
    if is_master_running(home):
        raise MasterRefusedError("it runs already. `core-sdk master status` shows it, `core-sdk master down` ends it")
    options = ["--stay", *([] if slots is None else [f"--slots={slots}"]), *(["--avoid-busy"] if avoid_busy else [])]
    click.echo(_describe(call(home, GetStatus(), options=options)))
    if with_ui:
        from core_sdk._interfaces.cli.ui import ui

        ui()


@app.command()
def status(as_json: AsJson = False, fields: Fields = "") -> None:
    """Show the master, its slots and its experiments."""
    found = _read_status()
    if found is not None and not isinstance(found, MasterStatus):
        raise click.exceptions.Exit(ExitCode.FAILURE)  # `_read_status` has said that it does not answer
    print_one(found or {}, {"Master": _describe(found) if found else "none runs"}, choose_form(as_json, fields=fields))


@app.command()
def down() -> None:
    """End the master. Trials that run go on, and the next master finds them."""
    home = Environment.read().home
    if call_running(home, Down()) is None:
        click.echo("no master runs")
        return
    await_end_of_master(home)
    click.echo("the master has ended")


def _describe(found: MasterStatus) -> str:
    devices = "GPUs" if found.gpus else "places on the CPU"
    here = [experiment for experiment in found.experiments if not experiment.cluster]
    num_used = sum(len(trial.slots) for experiment in here for trial in experiment.running)
    return (
        f"process {found.pid}, version {found.version}: {num_used} of {found.num_slots} {devices} in use, "
        f"{len(found.experiments)} experiments that have not ended"
    )


@slot_app.command("list")
def list_slots(as_json: AsJson = False, fields: Fields = "") -> None:
    """List the slots of this machine and of the Ray clusters that experiments use, and who has them.

    Of other users' trials it shows whose they are, and since when they run. Who waits for slots is said on stderr. The
    slots of trials in Slurm are its own affair: `core-sdk queue list` shows those that wait.
    """
    home = Environment.read().home
    tickets = SlotDirectory().read()
    rows = occupied_slots(_read_status() or status_without_master(), home, tickets, busy_gpus())
    if line := describe_line(tickets):
        say(f"in line for slots: {line}")
    has_nodes, has_homes = any(row.node for row in rows), any(row.home for row in rows)
    columns: list[Column[OccupiedSlot]] = [
        *([Column[OccupiedSlot]("Node", lambda row: row.node or "here")] if has_nodes else []),
        Column("Slot", lambda row: row.slot, is_number=True),
        Column("Device", lambda row: row.device),
        Column("User", lambda row: "(a program without a slot)" if row.is_filled else row.user),
        Column("Since", lambda row: None if row.since is None else clock(row.since)),
        Column("Experiment", lambda row: row.experiment_id, is_number=True),
        Column("Trial", lambda row: row.trial_id, is_number=True),
        *([Column[OccupiedSlot]("Home", lambda row: row.home, can_be_cut=True)] if has_homes else []),
    ]
    print_rows(rows, OccupiedSlot, columns, choose_form(as_json, fields=fields), "This machine has no slots.")


@queue_app.command("list")
def list_queue(
    all_homes: Annotated[
        bool,
        Option("--all-homes", help="Of all your homes with slots of this machine, or jobs in Slurm's queue."),
    ] = False,
    as_json: AsJson = False,
    fields: Fields = "",
) -> None:
    """List what waits or runs in this home, on all engines, in its order: since when it waits, and why.

    These are the experiments that have not ended, and what waits without a master: commands for their slots, and trials
    in Slurm's queue. Place is that in the line for the slots of this machine, in which all its users stand.
    """
    home, tickets = make_home(), SlotDirectory().read()
    rows = queue_of(home, _read_status() or journaled_status(home, _NO_MASTER), tickets)
    for path in sorted(homes_in_line(tickets) - {home.root}) if all_homes else ():
        with contextlib.suppress(CoreSDKError, OSError):
            other = Home.open(path)
            status = call_running(path, GetStatus(), is_patient=False) or journaled_status(other, _NO_MASTER)
            rows += queue_of(other, status, tickets)
    columns: list[Column[Queued]] = [
        *([Column[Queued]("Home", lambda row: row.home, can_be_cut=True)] if all_homes else []),
        Column("Experiment", lambda row: row.experiment_id, is_number=True),
        *([Column[Queued]("Trial", lambda row: row.trial_id)] if any(row.trial_id for row in rows) else []),
        Column("Name", lambda row: row.name, can_be_cut=True),
        Column("State", lambda row: row.state),
        *([Column[Queued]("Engine", lambda row: row.engine)] if any(row.engine != "local" for row in rows) else []),
        Column("Priority", lambda row: row.priority, is_number=True),
        Column("Running", lambda row: row.num_running, is_number=True),
        Column("Waiting", lambda row: row.num_waiting, is_number=True),
        *([Column[Queued]("Place", lambda row: row.place)] if any(row.place for row in rows) else []),
        Column("Since", lambda row: None if row.since is None else clock(row.since)),
        Column("Why", lambda row: row.why, can_be_cut=True),
    ]
    print_rows(rows, Queued, columns, choose_form(as_json, fields=fields), "Nothing waits or runs.")


@queue_app.command()
def move(
    experiment: Experiment,
    ahead_of: Annotated[int | None, experiment_option("It comes directly before this one.")] = None,
    behind: Annotated[int | None, experiment_option("It comes directly behind this one.")] = None,
) -> None:
    """Move an experiment in the queue of this home, to the priority of another one.

    In Slurm this moves jobs that wait, among the jobs of this home. On Ray, and on this machine, it decides which trial
    is started next; what has begun stays, unless a smaller priority needs its slots.
    """
    from core_sdk._execution.steering import experiments  # what a list does not need

    if (ahead_of is None) == (behind is None):
        raise click.BadParameter("say where to: --ahead-of EXPERIMENT or --behind EXPERIMENT")
    experiments.move(open_home(), experiment, ahead_of=ahead_of, behind=behind)


def _read_status() -> HomeStatus | None:
    """Returns the master's status; None if none runs. One that was killed, and is needed, is started again first.

    If the master does not answer, this says so, and returns what the journals tell.
    """
    home = Environment.read().home
    go_on(home, waits=True)
    try:
        return call_running(home, GetStatus(), is_patient=False)
    except MasterSilentError as error:
        say(f"{error} What follows is what the journals of the home tell.")
        return journaled_status(Home(home))
