"""`core-sdk notify …`."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Annotated

import click

from core_sdk._execution.messages import (
    KINDS,
    NotifyTarget,
    add_target,
    read_targets,
    remove_target,
    send_test,
)
from core_sdk._home import Home
from core_sdk._interfaces.cli._group import command_group
from core_sdk._interfaces.cli._home import in_home, open_home
from core_sdk._interfaces.cli._ids import trial_option
from core_sdk._interfaces.render.form import AsJson, choose_form
from core_sdk._interfaces.render.output import print_rows
from core_sdk._interfaces.render.tables import Column
from core_sdk._interfaces.signatures import Argument, Option

app = command_group()

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True)
class TargetRow:
    name: str
    url: str
    kinds: str
    experiment: str
    trial: int | None


_COLUMNS = [
    Column[TargetRow]("Name", lambda row: row.name),
    Column[TargetRow]("URL", lambda row: row.url),
    Column[TargetRow]("Messages", lambda row: row.kinds, can_be_cut=True),
    Column[TargetRow]("Of", lambda row: row.experiment or (f"trial {row.trial}" if row.trial else "all")),
]

Name = Annotated[str, Argument(help="The target's name.", show_default=False)]


@app.command()
def add(
    name: Annotated[str, Argument(help="A name for the target: letters, digits, - and _.", show_default=False)],
    url: Annotated[str, Argument(help="Its URL, as Apprise has it; `-` reads it from stdin.", show_default=False)],
    on: Annotated[
        list[str] | None,
        Option(metavar="KIND", help=f"Only these messages: {', '.join(KINDS)}; may be repeated.", show_default="all"),
    ] = None,
    experiment: Annotated[str, Option(metavar="NAME", help="Only of this experiment.", show_default=False)] = "",
    trial: Annotated[int | None, trial_option("Only of this trial.")] = None,
    remind_after: Annotated[
        float, Option(metavar="HOURS", help="When it tells of a trial that was stopped and not resumed.", min=0.0)
    ] = 12.0,
) -> None:
    """Send messages about the home's trials to a URL, such as one of Slack, Discord, ntfy, e-mail or a webhook.

    core-sdk notify add phone ntfy://ntfy.sh/my-topic --on failed --on stalled

    The URL is kept in the home's notify.json, which only you can read, and is shown nowhere.
    """
    if not _NAME.fullmatch(name):
        raise click.BadParameter(f"{name!r} is no name of a target: letters, digits, - and _, at most 64")
    if unknown := [kind for kind in on or () if kind not in KINDS]:
        raise click.BadParameter(f"there are no messages {unknown[0]!r}; there are {', '.join(KINDS)}")
    from core_sdk._execution.messages._apprise import is_known

    given = sys.stdin.readline().strip() if url == "-" else url
    if not is_known(given):
        raise click.BadParameter(
            "Apprise does not know such a URL: https://github.com/caronc/apprise/wiki has them all"
        )
    kinds = tuple(kind for kind in KINDS if kind in (on or KINDS))
    home = Home.create(open_home().root)
    add_target(
        home.root,
        NotifyTarget(
            name=name, url=given, kinds=kinds, experiment=experiment, trial=trial, remind_after_h=remind_after
        ),
    )


@app.command("list")
def list_targets(as_json: AsJson = False) -> None:
    """List where messages go, without what is secret in the URLs."""
    home = open_home()
    rows = [
        TargetRow(each.name, each.shown_url, ", ".join(each.kinds), each.experiment, each.trial)
        for each in read_targets(home.root)
    ]
    print_rows(rows, TargetRow, _COLUMNS, choose_form(as_json), f"No targets {in_home(home)}.")


@app.command()
def remove(name: Name) -> None:
    """Send no more messages to a target, and forget its URL and what waits for it."""
    if not remove_target(open_home().root, name):
        raise click.BadParameter(f"there is no target {name!r}")


@app.command()
def test(name: Name) -> None:
    """Send a message to a target at once, and say whether it has arrived."""
    target = next((each for each in read_targets(open_home().root) if each.name == name), None)
    if target is None:
        raise click.BadParameter(f"there is no target {name!r}")
    if problem := send_test(target):
        raise click.ClickException(f"{name} does not take messages: {problem}")
    click.echo(f"{name} has taken a message")
