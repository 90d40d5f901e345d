"""`core-sdk server …`: one address for a lab."""

from __future__ import annotations

import enum
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import click

from core_sdk._ground.environment import author
from core_sdk._interfaces.cli._arguments import parse_duration
from core_sdk._interfaces.cli._group import command_group
from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.signatures import Argument, Option

if TYPE_CHECKING:
    from core_sdk._interfaces.lab.folder import Lab
    from core_sdk._interfaces.lab.serving import Listening

T = TypeVar("T")

app = command_group()
workspace_app = command_group("Workspaces: the homes of the lab, each with people of its own.")
token_app = command_group("Tokens: what a program shows in order to read a workspace, or to record into it.")
app.add_command(workspace_app, "workspace")
app.add_command(token_app, "token")


class RoleName(enum.Enum):
    READER = "reader"
    WRITER = "writer"
    OWNER = "owner"


LabFolder = Annotated[
    Path, Option("--lab", metavar="DIR", help="The folder of the lab.", show_default="this directory")
]
HERE = Path()
Workspace = Annotated[str, Argument(metavar="WORKSPACE", help="The name of the workspace.")]
RoleOption = Annotated[RoleName, Option("--role", help="What they may do: read, also record and act, or all of it.")]
PersonOption = Annotated[
    str | None, Option("--person", metavar="NAME", help="Whose it is.", show_default="the name of the user")
]


@app.command()
def init(
    folder: Annotated[Path, Argument(metavar="DIR", help="A folder that is missing or empty.")],
) -> None:
    """Make the folder of a lab, as `core-sdk server up` does, too."""
    from core_sdk._interfaces.lab.folder import Lab as Made

    Made.create(folder)
    click.echo(f"{folder} is the folder of a lab")


@app.command()
def up(
    folder: Annotated[Path, Argument(metavar="DIR", help="The folder of the lab; made if it is missing or empty.")],
    listen: Annotated[str, Option("--listen", metavar="HOST:PORT", help="Where to listen.")] = "127.0.0.1:8700",
) -> None:
    """Serve a lab, until Ctrl-C or SIGTERM.

    A lab is a folder of homes, its workspaces. People and programs reach all of them at one address, and each sees what
    their role allows.
    """
    from core_sdk._interfaces.lab.folder import Lab
    from core_sdk._interfaces.lab.serving import serve_lab

    def tell(listening: Listening) -> None:
        click.echo(listening.url)
        say("Ctrl-C ends the server")

    try:
        serve_lab(Lab.create(folder), listen, on_listening=tell)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--listen") from error


@workspace_app.command("add")
def add_workspace(name: Workspace, lab: LabFolder = HERE) -> None:
    """Make a workspace, which is an empty home."""
    _refused(lambda: _open(lab).add_workspace(name))
    click.echo(f"workspace {name}")


@workspace_app.command("list")
def list_workspaces(lab: LabFolder = HERE) -> None:
    """List the workspaces of the lab."""
    for name in _open(lab).workspaces():
        click.echo(name)


@token_app.command("new")
def new_token(
    workspace: Workspace,
    role: RoleOption = RoleName.READER,
    person: PersonOption = None,
    expires: Annotated[
        str, Option("--expires", metavar="TIME", help="When it ends, such as 12h or 30d.", show_default="90d")
    ] = "90d",
    lab: LabFolder = HERE,
) -> None:
    """Make a token, and print it. Nobody can read it again: the lab keeps its SHA-256.

    Whoever is no member of the workspace becomes one, with this role.
    """
    opened = _open(lab)
    opened.home(workspace)
    whose = person or author()
    if workspace not in opened.people.read().roles_of(whose):
        _refused(lambda: opened.people.set_role(workspace, whose, role.value))
        say(f"{whose} is now a {role.value} of {workspace}")
    lasts_s = parse_duration(expires)
    secret, made = _refused(lambda: opened.people.issue("token", whose, lasts_s, workspace=workspace, role=role.value))
    click.echo(secret)
    say(f"token {made.id} of {whose}: `core-sdk server token revoke {made.id}` ends it")


@token_app.command("revoke")
def revoke_token(
    token: Annotated[str, Argument(metavar="ID", help="Its id, as `core-sdk server token list` shows it.")],
    lab: LabFolder = HERE,
) -> None:
    """End a token, a session, an invitation or a link at once, also in streams that are open."""
    _refused(lambda: _open(lab).people.revoke(token))
    click.echo(f"revoked {token}")


def _open(folder: Path) -> Lab:
    from core_sdk._interfaces.lab.folder import Lab as Opened

    return Opened.open(folder)


def _refused(done: Callable[[], T]) -> T:
    """Returns what the function returns; what it refuses is a wrong usage."""
    try:
        return done()
    except ValueError as error:
        raise click.UsageError(str(error)) from error
