"""`core-sdk login` and `core-sdk push`."""

from __future__ import annotations

import contextlib
import sys
from typing import Annotated

import click

from core_sdk._ground.alive import is_alive
from core_sdk._ground.environment import WorkspaceSettings
from core_sdk._home import Home
from core_sdk._home.pushes import (
    Login,
    PushRecord,
    find_login,
    log_in,
    name_of,
    pusher_lock,
    pusher_log,
    read_logins,
    wanted_pushes,
)
from core_sdk._interfaces.cli._failures import ExitCode
from core_sdk._interfaces.cli._home import open_home
from core_sdk._interfaces.cli._ids import MaybeTrialIds
from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.render.text import printable
from core_sdk._interfaces.signatures import Argument, Option
from core_sdk._workspace.connection import WorkspaceConnection
from core_sdk._workspace.following import Following
from core_sdk._workspace.pushing import Pushed, Pusher
from core_sdk._workspace.questions import QUESTIONS

_MOST_SHOWN = 20
_MOST_PROBLEMS = 5

OfWorkspace = Annotated[
    str,
    Option(
        "--to",
        metavar="WORKSPACE",
        help="The workspace: the name of a login, or its address.",
        show_default="the variable CORE_SDK_SERVER",
    ),
]


def login(
    url: Annotated[str, Argument(metavar="URL", help="The address of the workspace, such as https://HOST/w/NAME.")],
    name: Annotated[
        str, Option(metavar="NAME", help="The name by which you mean it.", show_default="the last part of the URL")
    ] = "",
    no_actions: Annotated[
        bool, Option("--no-actions", help="Refuse what people ask of your trials there: pause, kill, resume.")
    ] = False,
) -> None:
    """Keep your token for a workspace on a server, which `core-sdk push` and `init(workspace=…)` then use.

    The token is read from stdin, without an echo at a terminal. It is kept in a file that only you can read.

    You, and the owners of the workspace, may then pause, kill and resume from there the trials that you send. With
    --no-actions, nobody may.
    """
    if not url.startswith(("https://", "http://")):
        raise click.BadParameter(f"{url!r} is no address: it begins with https://")
    taken = [each.name for each in read_logins() if each.url != url.rstrip("/")]
    if name in taken:
        raise click.BadParameter(f"the name {name} stands for another workspace: choose one by --name")
    token = click.prompt("Token", hide_input=True) if sys.stdin.isatty() else sys.stdin.readline()
    known = Login(
        name=name or name_of(url, taken), url=url.rstrip("/"), token=token.strip(), takes_actions=not no_actions
    )
    with WorkspaceConnection(known.url, known.token) as connection:
        connection.ask("left_out", QUESTIONS["left_out"].encoded((), {}))  # which whoever reads may ask
    log_in(known)
    click.echo(f"{known.url} is {known.name} from now on")


def push(
    trial_ids: MaybeTrialIds = None,
    workspace: OfWorkspace = "",
    with_checkpoints: Annotated[
        bool, Option("--checkpoints", help="Send the files of checkpoints that lie in the home, too.")
    ] = False,
    follow: Annotated[
        bool, Option("--follow", help="Go on until the trials have ended and all is there, also if the server is away.")
    ] = False,
    status: Annotated[
        bool, Option("--status", help="Show what is on its way in the background, and what went wrong last.")
    ] = False,
) -> None:
    """Send trials to a workspace on a server: all of the home, or those that are named.

    What has arrived before is not sent again. A running trial is sent as it is now. Interrupt it as you like: the next
    push continues.
    """
    home = open_home()
    if status:
        _show_status(home)
        return
    ids = home.trial_ids() if trial_ids is None else [home.trial(each).trial_id for each in trial_ids]
    found = _login(workspace)
    if follow:
        waiting = {each: PushRecord(trial_id=each, workspace=found.url) for each in ids}
        following = Following(home, with_checkpoints=with_checkpoints)
        following.run(lambda: list(waiting.values()), lambda record: waiting.pop(record.trial_id, None), say)
        for address, pushed in following.pushed():
            _show(pushed, address, is_told=True)
        return
    with WorkspaceConnection(found.url, found.token) as connection:
        pusher = Pusher(home, connection, with_checkpoints=with_checkpoints)
        pusher.push(ids)
    _show(pusher.pushed, found.url)


def _login(workspace: str) -> Login:
    settings = WorkspaceSettings.read()
    known = read_logins()
    named = workspace or settings.server or (known[0].name if len(known) == 1 else "")
    if not named:
        raise click.UsageError("say which workspace by --to or CORE_SDK_SERVER; `core-sdk login URL` adds one")
    return find_login(named, settings)


def _show_status(home: Home) -> None:
    """Shows what the pusher of the home has to do, and what went wrong last."""
    records = wanted_pushes(home.root)
    for record in records:
        click.echo(f"trial {record.trial_id} is on its way to {record.workspace}")
    runs = "runs" if is_alive(pusher_lock(home.root)) else "does not run: the next training or `core-sdk push` sends it"
    click.echo(f"the pusher {runs}" if records else "everything is sent")
    with contextlib.suppress(FileNotFoundError):
        for line in pusher_log(home.root).read_text(errors="replace").splitlines()[-_MOST_PROBLEMS:]:
            click.echo(printable(line))
        click.echo(f"more is in {printable(str(pusher_log(home.root)))}")


def _show(pushed: Pushed, url: str, *, is_told: bool = False) -> None:
    others = {ours: theirs for ours, theirs in pushed.numbers.items() if ours != theirs}
    for ours, theirs in list(others.items())[:_MOST_SHOWN]:
        click.echo(f"trial {ours} is trial {theirs} there")
    for problem in () if is_told else pushed.problems:
        say(problem)
    of = "1 trial" if len(pushed.numbers) == 1 else f"{len(pushed.numbers)} trials"
    click.echo(f"{of} in {url}: {f'{pushed.num_bytes:,} bytes were sent' if pushed.num_bytes else 'nothing is new'}")
    if pushed.problems:
        raise click.exceptions.Exit(ExitCode.FAILURE)
