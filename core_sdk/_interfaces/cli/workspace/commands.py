"""`core-sdk login` and `core-sdk push`."""

from __future__ import annotations

import sys
from typing import Annotated

import click

from core_sdk._ground.environment import WorkspaceSettings
from core_sdk._home.pushes import Login, PushRecord, find_login, log_in, name_of, read_logins
from core_sdk._interfaces.cli._failures import ExitCode
from core_sdk._interfaces.cli._home import open_home
from core_sdk._interfaces.cli._ids import MaybeTrialIds
from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.signatures import Argument, Option
from core_sdk._workspace.connection import WorkspaceConnection
from core_sdk._workspace.following import Following
from core_sdk._workspace.pushing import Pushed, Pusher
from core_sdk._workspace.questions import QUESTIONS

_MOST_SHOWN = 20

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
) -> None:
    """Send trials to a workspace on a server: all of the home, or those that are named.

    What has arrived before is not sent again. A running trial is sent as it is now. Interrupt it as you like: the next
    push continues.
    """
    home = open_home()
    ids = home.trial_ids() if trial_ids is None else [home.trial(each).trial_id for each in trial_ids]
    found = _login(workspace)
    if follow:
        waiting = {each: PushRecord(trial_id=each, workspace=found.url) for each in ids}
        following = Following(home, with_checkpoints=with_checkpoints)
        following.run(lambda: list(waiting.values()), lambda record: waiting.pop(record.trial_id, None), say)
        for address, pushed in following.pushed():
            _show(pushed, address)
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


def _show(pushed: Pushed, url: str) -> None:
    others = {ours: theirs for ours, theirs in pushed.numbers.items() if ours != theirs}
    for ours, theirs in list(others.items())[:_MOST_SHOWN]:
        click.echo(f"trial {ours} is trial {theirs} there")
    for problem in pushed.problems:
        say(problem)
    of = "1 trial" if len(pushed.numbers) == 1 else f"{len(pushed.numbers)} trials"
    click.echo(f"{of} in {url}: {f'{pushed.num_bytes:,} bytes were sent' if pushed.num_bytes else 'nothing is new'}")
    if pushed.problems:
        raise click.exceptions.Exit(ExitCode.FAILURE)
