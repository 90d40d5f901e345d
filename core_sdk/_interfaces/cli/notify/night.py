"""`core-sdk night`."""

from __future__ import annotations

import time
from typing import Annotated

import click

from core_sdk._interfaces.cli._arguments import parse_since
from core_sdk._interfaces.render.form import AsJson
from core_sdk._interfaces.signatures import Option


def night(
    since: Annotated[
        float | None,
        Option(
            metavar="TIME",
            parser=parse_since,
            help="Since 30m, 2h, 3d ago, or 2026-11-27T14:00.",
            show_default="the last look",
        ),
    ] = None,
    peek: Annotated[bool, Option("--peek", help="Do not count this as a look.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what has happened since you last looked, in at most 2 KB: what failed, hangs, went back, ended, was best.

    core-sdk night
    core-sdk night --since 3d --json

    Without --since it goes back to the last time that somebody asked so, or 12 hours. Waiting and running trials are
    named, and where the time of all these trials went.
    """
    from core_sdk._analysis.night import A_NIGHT_S, last_look, note_look, read_night
    from core_sdk._home import open_view
    from core_sdk._interfaces.cli._home import open_home
    from core_sdk._interfaces.render.output import print_object
    from core_sdk._interfaces.render.text import printable

    home, now = open_home(), time.time()
    begun = since if since is not None else last_look(home) or now - A_NIGHT_S
    with open_view(home) as view:
        found = read_night(home, view, begun, now)
    if as_json:
        print_object(found.as_values())
    else:
        for line in found.text().splitlines():
            click.echo(printable(line))
    if since is None and not peek and home.root.exists():
        note_look(home, now)
