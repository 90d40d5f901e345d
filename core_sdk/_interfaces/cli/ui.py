"""`core-sdk ui`: the web page."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.signatures import Option

if TYPE_CHECKING:
    from core_sdk._interfaces.server.serving import Address

Port = Annotated[
    int | None, Option(min=1, max=65535, help="The port.", show_default="8650, or the next one that is free")
]


def ui(
    port: Port = None,
    host: Annotated[str, Option(help="The address to listen at; any but 127.0.0.1 needs --token.")] = "127.0.0.1",
    token: Annotated[
        str | None,
        Option(metavar="TEXT|@FILE", help="The token that browsers need.", show_default="a new one each time"),
    ] = None,
    read_only: Annotated[bool, Option("--read-only", help="Refuse all actions.")] = False,
    until_eof: Annotated[bool, Option("--until-eof", hidden=True)] = False,
    no_browser: Annotated[bool, Option("--no-browser", help="Do not open a browser.")] = False,
) -> None:
    """Show the home in a web browser, until Ctrl-C.

    The address that is printed has a token, without which no question is answered: other users of this machine can
    reach the port too. Give --token as @FILE, since all users see the words of a command.
    """
    from core_sdk._interfaces.cli._home import open_home
    from core_sdk._interfaces.server import serving

    chosen = _read_token(token)
    try:
        serving.check_exposure(host, chosen)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if not serving.is_loopback(host):
        say(
            f"listening at {host}: every machine that reaches it can read this home with the token"
            f"{'' if read_only else ', and pause, resume, kill and delete'}; the connection is not encrypted"
        )

    def tell(address: Address) -> None:
        click.echo(address.url)
        say("Ctrl-C ends the server; trainings go on")
        if not no_browser:
            _open_browser(address)

    until = sys.stdin if until_eof else None
    can_act = not read_only
    serving.serve(open_home(), until=until, host=host, port=port, token=chosen, can_act=can_act, on_listening=tell)


def _read_token(token: str | None) -> str | None:
    if token is None or not token.startswith("@"):
        return token
    path = Path(token[1:])
    try:
        if (mode := stat.S_IMODE(path.stat().st_mode)) & (stat.S_IRGRP | stat.S_IROTH):
            say(f"other users of this machine can read the token: the mode of {path} is {mode:o}. `chmod 600 {path}`")
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"the token cannot be read: {error}", param_hint="--token") from error


def _open_browser(address: Address) -> None:
    """Opens the page through a private file, since all users can see the arguments of a command."""
    import html
    import tempfile
    import threading
    import webbrowser

    if not sys.stdout.isatty():
        return
    with tempfile.NamedTemporaryFile("w", suffix=".html", prefix="core-sdk-", delete=False) as file:  # mode 0600
        file.write(f"<!doctype html><meta http-equiv=refresh content='0;url={html.escape(address.url)}'>")
    threading.Timer(30, Path(file.name).unlink, kwargs={"missing_ok": True}).start()
    webbrowser.open(Path(file.name).as_uri())
