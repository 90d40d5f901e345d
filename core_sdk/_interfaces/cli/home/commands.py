"""`core-sdk home …`, and `core-sdk index rebuild`."""

from __future__ import annotations

import grp
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from core_sdk._home import Home
from core_sdk._interfaces.cli._failures import ExitCode
from core_sdk._interfaces.cli._group import command_group
from core_sdk._interfaces.cli._home import make_home, open_home
from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.cli.trial.time_ledger import home_time
from core_sdk._interfaces.signatures import Argument, Option

if TYPE_CHECKING:
    from core_sdk._home.moving.merging import Merged

app = command_group()
index_app = command_group()

app.command("time")(home_time)


@app.command()
def adopt() -> None:
    """Say that the home was moved here: what it has stored outside, and its experiments, are its own again.

    Not for a copy whose original is still used: these are the original's checkpoints.
    """
    from core_sdk._execution.experiments.reviving import go_on_here
    from core_sdk._home.moving.relocation import adopt as adopt_home

    home = make_home()
    if not adopt_home(home):
        click.echo(f"nothing in {home.root} was begun elsewhere")
        return
    click.echo(f"{home.root} owns what it has begun and stored elsewhere")
    if go_on_here(home):
        click.echo("its experiments go on")


@app.command()
def copy() -> None:
    """Say that the home is a copy: what was begun and stored before is its original's, and is left alone.

    A copy is noticed as such, and needs this only if it was made below the file system, like an image of a disk or of
    a virtual machine.
    """
    home = make_home()
    home.draw_identity()
    click.echo(f"{home.root} is a home of its own, and leaves alone what was begun and stored before")


@app.command()
def merge(
    other: Annotated[Path, Argument(metavar="OTHER", help="The folder of the other home, which is only read.")],
) -> None:
    """Take the trials of another home into this one, under new ids.

    Their checkpoints, experiments, models and media come along, and nothing comes twice when it is repeated. What
    still runs there is left for the next time. Checkpoints in other storages stay there, and belong to the other home.
    """
    from core_sdk._home.moving.merging import merge as merge_homes

    home = make_home()
    if not (other / "home.json").exists() or other.resolve() == home.root.resolve():
        raise click.BadParameter(f"{other} is not the folder of another home")
    print_merged(merge_homes(home, Home.open(other)))


def print_merged(merged: Merged) -> None:
    """Prints what was taken, and what was not; exits with 1 if something was left."""
    click.echo(f"{len(merged.taken)} trials were taken, {len(merged.known)} were here already")
    for trial_id, here in merged.taken.items():
        ends = "" if trial_id not in merged.unended else ". No end is recorded: if it was training, merge again later"
        click.echo(f"trial {trial_id} is trial {here} here{ends}")
    for trial_id in merged.grown:
        click.echo(f"trial {trial_id} has gone on there, which trial {merged.known[trial_id]} has now, too")
    for left in merged.left:
        say(f"left: {left}")
    if merged.left:
        raise click.exceptions.Exit(ExitCode.FAILURE)


@app.command()
def share(
    group: Annotated[str, Option(metavar="NAME", help="The group that may read.", show_default="your own group")] = "",
    off: Annotated[bool, Option("--off", help="Make the home private again.")] = False,
) -> None:
    """Let a group read the home: what is recorded in it now and later, its code, its output and its checkpoints.

    The group can change nothing. Logins, messages and the index stay private. Repeat it for files that another user or
    an older version has made since.
    """
    from core_sdk._home.folders import sharing

    home = make_home()
    if off:
        num_refused = sharing.unshare(home)
        click.echo(f"{home.root} is private")
    else:
        try:
            chosen = grp.getgrnam(group) if group else grp.getgrgid(os.getegid())
        except KeyError:
            raise click.BadParameter(f"there is no group {group or os.getegid()}", param_hint="--group") from None
        try:
            num_refused = sharing.share(home, chosen.gr_gid)
        except PermissionError as error:
            raise click.BadParameter(f"{error}: are you a member of {chosen.gr_name}?", param_hint="--group") from None
        click.echo(f"the group {chosen.gr_name} can read {home.root}")
        if (closed := sharing.closed_above(home)) is not None:
            say(f"the group does not get there: {closed} is closed to it (`chmod o+x`, or a home elsewhere)")
    if num_refused:
        say(f"{num_refused} files stay as they are: they belong to somebody else")
        raise click.exceptions.Exit(ExitCode.FAILURE)


@index_app.command()
def rebuild() -> None:
    """Build the index again from the journals."""
    from core_sdk._home.index import Index  # a database, which other commands may not need

    result = Index.rebuild(open_home())
    click.echo(f"indexed {result.num_trials} trials with {result.num_points} points")
    if result.num_bad_lines:
        click.echo(f"{result.num_bad_lines} damaged lines were skipped", err=True)
