"""`core-sdk server …`: one address for a lab."""

from __future__ import annotations

import contextlib
import enum
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from core_sdk._ground.environment import author
from core_sdk._interfaces.cli._arguments import parse_duration
from core_sdk._interfaces.cli._group import command_group
from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.signatures import Argument, Option

if TYPE_CHECKING:
    from core_sdk._interfaces.lab.folder import Lab
    from core_sdk._interfaces.lab.people import Credential
    from core_sdk._interfaces.lab.site import Site

app = command_group()
workspace_app = command_group("Workspaces: the homes of the lab, each with people of its own.")
person_app = command_group("People: who belongs to a workspace, and as what.")
token_app = command_group("Tokens: what a program shows in order to read a workspace, or to record into it.")
app.add_command(workspace_app, "workspace")
app.add_command(person_app, "person")
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
Person = Annotated[str, Argument(metavar="PERSON", help="The name, as sign-ins tell it, or an address of e-mail.")]
RoleOption = Annotated[RoleName, Option("--role", help="What they may do: read, also record and act, or all of it.")]


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
    url: Annotated[
        str | None,
        Option("--url", metavar="URL", help="How people reach it, if that is another address: https://lab.example.org"),
    ] = None,
    certificate: Annotated[
        Path | None, Option("--certificate", metavar="FILE", help="The certificate for https, with its chain, as PEM.")
    ] = None,
    key: Annotated[Path | None, Option("--key", metavar="FILE", help="Its private key.")] = None,
    proxy: Annotated[
        list[str] | None,
        Option("--proxy", metavar="ADDRESS", help="The address or network of a proxy that encrypts; may be repeated."),
    ] = None,
    person_header: Annotated[
        str, Option("--person-header", metavar="NAME", help="The header in which that proxy names who has signed in.")
    ] = "",
    oidc_issuer: Annotated[
        str | None, Option("--oidc-issuer", metavar="URL", help="An OpenID Connect provider, where people sign in.")
    ] = None,
    oidc_client_id: Annotated[
        str | None, Option("--oidc-client-id", metavar="ID", help="The lab's name there.")
    ] = None,
    oidc_secret_file: Annotated[
        Path | None,
        Option("--oidc-secret-file", metavar="FILE", help="A file with its secret, which only you can read."),
    ] = None,
) -> None:
    """Serve a lab, until Ctrl-C or SIGTERM. SIGHUP reads a renewed certificate.

    A lab is a folder of homes, its workspaces. People and programs reach all of them at one address, and each sees what
    their role allows.
    """
    from core_sdk._interfaces.lab.folder import Lab
    from core_sdk._interfaces.lab.oidc import provider_of
    from core_sdk._interfaces.lab.serving import Exposure, serve_lab
    from core_sdk._workspace.routes import workspace_routes

    def tell(site: Site) -> None:
        click.echo(f"{site.url}/")
        say("Ctrl-C ends the server")

    with _refusals():
        provider = provider_of(oidc_issuer, oidc_client_id, oidc_secret_file)
        exposure = Exposure(listen, url, certificate, key, proxy or (), person_header, provider)
        serve_lab(Lab.create(folder), exposure, writer_routes=workspace_routes, on_listening=tell)


@app.command()
def backup(
    archive: Annotated[Path, Argument(metavar="FILE", help="The tar archive that is made.")],
    lab: LabFolder = HERE,
    without_checkpoints: Annotated[
        bool, Option("--without-checkpoints", help="Leave out the checkpoints in the folder.")
    ] = False,
) -> None:
    """Copy all of a lab into one archive, also while its server runs."""
    from core_sdk._interfaces.lab.backup import back_up

    number = back_up(_open(lab), archive, with_checkpoints=not without_checkpoints)
    click.echo(f"{archive} has {number} files")


@app.command()
def restore(
    archive: Annotated[Path, Argument(metavar="FILE", help="An archive that `core-sdk server backup` has made.")],
    folder: Annotated[Path, Argument(metavar="DIR", help="A folder that is missing or empty.")],
) -> None:
    """Make the folder of a lab of an archive. Indexes are built again when they are first needed."""
    from core_sdk._interfaces.lab import backup as backups

    restored = backups.restore(archive, folder)
    click.echo(f"{folder} has the workspaces {', '.join(restored.workspaces()) or '-'}")


@app.command()
def invite(
    workspace: Workspace,
    person: Person,
    role: RoleOption = RoleName.READER,
    url: Annotated[
        str, Option("--url", metavar="URL", help="The address of the lab, as people reach it.")
    ] = "http://127.0.0.1:8700",
    lab: LabFolder = HERE,
) -> None:
    """Make a one-time link, and print it. Whoever opens it first has signed in as that person."""
    from core_sdk._interfaces.lab.people import INVITATION_S, invitation_address

    opened = _open(lab)
    opened.home(workspace)
    with _refusals():
        secret, made = opened.people.issue("invitation", person, INVITATION_S, workspace=workspace, role=role.value)
    _log(opened, f"invite {person} to {workspace} as {role.value}")
    click.echo(invitation_address(url.rstrip("/"), secret))
    say(f"it can be used once within 3 days; `core-sdk server token revoke {made.id}` withdraws it")


@workspace_app.command("add")
def add_workspace(name: Workspace, lab: LabFolder = HERE) -> None:
    """Make a workspace, which is an empty home."""
    opened = _open(lab)
    with _refusals():
        opened.add_workspace(name)
    _log(opened, f"workspace add {name}")
    click.echo(f"workspace {name}")


@workspace_app.command("list")
def list_workspaces(lab: LabFolder = HERE) -> None:
    """List the workspaces of the lab."""
    for name in _open(lab).workspaces():
        click.echo(name)


@workspace_app.command("remove")
def remove_workspace(name: Workspace, lab: LabFolder = HERE) -> None:
    """Take a workspace out of the lab. Its home is moved aside, and not deleted."""
    opened = _open(lab)
    place = opened.remove_workspace(name)
    _log(opened, f"workspace remove {name}")
    click.echo(f"the home of {name} lies in {place} now")


@person_app.command("set")
def set_person(workspace: Workspace, person: Person, role: RoleOption = RoleName.READER, lab: LabFolder = HERE) -> None:
    """Make a person a member of a workspace, or change their role."""
    opened = _open(lab)
    opened.home(workspace)
    with _refusals():
        opened.people.set_role(workspace, person, role.value)
    _log(opened, f"person set {workspace} {person} {role.value}")
    click.echo(f"{person} is a {role.value} of {workspace}")


@person_app.command("remove")
def remove_person(workspace: Workspace, person: Person, lab: LabFolder = HERE) -> None:
    """Take a person out of a workspace: their tokens, links and open pages end there at once."""
    opened = _open(lab)
    with _refusals():
        opened.people.set_role(workspace, person, None)
    _log(opened, f"person remove {workspace} {person}")
    click.echo(f"{person} is no member of {workspace}")


@person_app.command("list")
def list_people(lab: LabFolder = HERE) -> None:
    """List the people of each workspace."""
    for workspace, members in sorted(_open(lab).people.read().members.items()):
        for person, role in sorted(members.items()):
            click.echo(f"{workspace}  {person}  {role}")


@token_app.command("new")
def new_token(
    workspace: Annotated[
        str | None, Argument(metavar="WORKSPACE", help="The name of the workspace; none with --metrics.")
    ] = None,
    role: RoleOption = RoleName.READER,
    person: Annotated[
        str | None, Option("--person", metavar="NAME", help="Whose it is.", show_default="the name of the user")
    ] = None,
    expires: Annotated[str, Option("--expires", metavar="TIME", help="When it ends, such as 12h or 30d.")] = "90d",
    label: Annotated[str, Option("--label", metavar="TEXT", help="What it is for.")] = "",
    metrics: Annotated[
        bool, Option("--metrics", help="For Prometheus: it reads the figures of the server, and nothing else.")
    ] = False,
    lab: LabFolder = HERE,
) -> None:
    """Make a token, and print it. Nobody can read it again: the lab keeps its SHA-256.

    Whoever is no member of the workspace becomes one, with this role.
    """
    opened = _open(lab)
    whose = person or author()
    if metrics == (workspace is not None):
        raise click.UsageError("name a workspace, or give --metrics")
    with _refusals():
        if workspace is None:
            secret, made = opened.people.issue("metrics", whose, parse_duration(expires), label=label)
        else:
            opened.home(workspace)
            if workspace not in opened.people.read().roles_of(whose):
                opened.people.set_role(workspace, whose, role.value)
                say(f"{whose} is now a {role.value} of {workspace}")
            secret, made = opened.people.issue(
                "token", whose, parse_duration(expires), workspace=workspace, role=role.value, label=label
            )
    _log(opened, f"token new {made.id} for {whose} in {workspace or 'no workspace'}")
    click.echo(secret)
    say(f"token {made.id} of {whose}: `core-sdk server token revoke {made.id}` ends it")


@token_app.command("list")
def list_tokens(lab: LabFolder = HERE) -> None:
    """List tokens, sessions, invitations and links, without what proves them."""
    from core_sdk._interfaces.lab.last_uses import LastUses

    opened = _open(lab)
    people, uses = opened.people.read(), LastUses(opened.last_uses)
    for one in people.credentials.values():
        if people.holds(one, time.time()):
            click.echo(f"{one.id}  {_described(one)}  used {_day(uses.of(one.id))}  until {_day(one.expires)}")


@token_app.command("revoke")
def revoke_token(
    token: Annotated[str, Argument(metavar="ID", help="Its id, as `core-sdk server token list` shows it.")],
    lab: LabFolder = HERE,
) -> None:
    """End a token, a session, an invitation or a link at once, also in streams that are open."""
    opened = _open(lab)
    with _refusals():
        opened.people.revoke(token)
    _log(opened, f"token revoke {token}")
    click.echo(f"revoked {token}")


def _described(one: Credential) -> str:
    limits = [one.workspace, one.role or "", f"trial {one.trial_id}" if one.trial_id else "", one.label]
    return "  ".join(filter(None, [one.kind, one.person, *limits]))


def _day(when: float | None) -> str:
    return "-" if when is None else time.strftime("%Y-%m-%d", time.gmtime(when))


def _log(lab: Lab, what: str) -> None:
    from core_sdk._interfaces.lab.audit import AuditLog

    AuditLog(lab.log).write(author(), "command", what)


def _open(folder: Path) -> Lab:
    from core_sdk._interfaces.lab.folder import Lab as Opened

    return Opened.open(folder)


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Tells what is refused as a wrong usage."""
    try:
        yield
    except ValueError as error:
        raise click.UsageError(str(error)) from error
