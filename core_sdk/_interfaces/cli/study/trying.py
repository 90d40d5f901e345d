"""`core-sdk try` and `core-sdk wait`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from core_sdk._home.finding.studies import find_study, tries_to_await
from core_sdk._interfaces.cli._arguments import Hparams, parse_duration, parse_hparams
from core_sdk._interfaces.cli._failures import ExitCode
from core_sdk._interfaces.cli._home import open_home
from core_sdk._interfaces.cli._ids import MaybeTrialIds, trial_option
from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.cli.study.commands import OfStudy
from core_sdk._interfaces.render.text import printable
from core_sdk._interfaces.signatures import Argument, Option

if TYPE_CHECKING:
    from core_sdk._home import Home
    from core_sdk._home.finding.facts import Facts
    from core_sdk._home.finding.tries import Tries, TryState

Timeout = Annotated[
    float | None,
    Option(metavar="TIME", parser=parse_duration, help="Wait no longer than this: 90s, 5m, 2h. It goes on."),
]


_MOST_REASON_CHARS = 80


def try_code(
    hypothesis: Annotated[str, Argument(help="What the change is expected to show.", show_default=False)],
    command: Annotated[
        list[str] | None, Argument(help="The command to start, after `--`.", show_default="the study's")
    ] = None,
    parent: Annotated[
        int | None, trial_option("The try that this one varies.", "the newest that was kept, or else the first")
    ] = None,
    no_parent: Annotated[bool, Option("--no-parent", help="It varies none.")] = False,
    seeds: Annotated[int | None, Option(min=1, max=100, help="How often.", show_default="the study's")] = None,
    hparam: Hparams = None,
    again: Annotated[bool, Option("--again", help="Although it was tried; an equal try gets more seeds.")] = False,
    stop_if_behind: Annotated[
        bool,
        Option("--stop-if-behind", help="Stop a trial that is worse than the parent at the same step, beyond noise."),
    ] = False,
    detach: Annotated[bool, Option("--detach", help="Print the number of the try and return at once.")] = False,
    timeout: Timeout = None,
    author: Annotated[
        str, Option(metavar="NAME", help="Who tries it.", show_default="CORE_SDK_AUTHOR, or your user name")
    ] = "",
    study: OfStudy = "",
) -> None:
    """Try the code of this directory as it is now, with several seeds, and show what it was worth.

    core-sdk try "a larger learning rate"
    core-sdk try "twice as wide" --parent 4 --seeds 5 -- python train.py --width 128

    The code is copied, and the copy is what runs: you may go on editing. In git it also becomes a commit, under
    refs/core-sdk, that changes neither the index nor the work tree. Files that are no code, such as data that
    .gitignore names, are linked into the copy. What was tried before is named, and not run again without --again.

    Exit status: 0 all trials have ended, 1 one has failed, 75 one was stopped, 124 --timeout was over, and it goes on.
    """
    from core_sdk._analysis.studies import already_tried_text
    from core_sdk._execution.studies import AlreadyTried, TryRequest, await_tries, begin_try, exit_status_of_try
    from core_sdk._ground.environment import author as known_author

    home = open_home()
    found = find_study(home, study, Path.cwd())
    request = TryRequest(
        hypothesis=hypothesis,
        directory=Path.cwd(),
        author=author or known_author(),
        command=command or (),
        hparams=parse_hparams(hparam or []),
        parent=parent,
        has_no_parent=no_parent,
        num_seeds=seeds,
        is_again=again,
        is_stopped_if_behind=stop_if_behind,
    )
    try:
        begun = begin_try(home, found.experiment_id, found.record, request)
    except ValueError as error:
        if type(error) is not ValueError:
            raise
        raise click.BadParameter(str(error)) from None
    if isinstance(begun, AlreadyTried):
        say(already_tried_text(begun.likeness, begun.known, begun.tries))
        raise click.exceptions.Exit(ExitCode.USAGE)
    if detach:
        click.echo(begun.try_id)
        return
    ids = ", ".join(map(str, begun.trial_ids))
    varied = "" if begun.parent is None else f" varies {begun.parent},"
    more = "more " if begun.is_repeated else ""
    say(f"try {begun.try_id}{varied} with {len(begun.trial_ids)} {more}seeds: trials {ids}")
    for _ in await_tries(home, {begun.try_id: begun.trial_ids}, math.inf if timeout is None else timeout):
        pass
    tries = found.read(home)
    _show(home, tries, begun.try_id)
    raise click.exceptions.Exit(exit_status_of_try([tries.by_id[begun.try_id].state]))


def wait(
    ids: MaybeTrialIds = None,
    any_is_enough: Annotated[bool, Option("--any", help="Return after the first that has ended.")] = False,
    timeout: Timeout = None,
    study: OfStudy = "",
) -> None:
    """Wait for tries, and print a line for each when it has ended.

    Without ids it waits for all tries of the study that run, or wait for slots.

    Exit status: 0 all trials have ended, 1 one has failed, 75 one was stopped, 124 --timeout was over.
    """
    from core_sdk._analysis.studies import board_line, difference_text, value_text
    from core_sdk._execution.studies import await_tries, exit_status_of_try

    home = open_home()
    found = find_study(home, study, Path.cwd())
    wanted = tries_to_await(found.read(home), ids or ())
    if not wanted:
        say("no try of the study runs, or waits for slots")
    seen: list[TryState] = []
    for try_id in await_tries(home, wanted, math.inf if timeout is None else timeout, is_any_enough=any_is_enough):
        tries = found.read(home)
        one = tries.by_id[try_id]
        line = board_line(tries, one)
        told = [
            f"{try_id} {one.state}",
            f"n={line.num_values}",
            value_text(line),
            difference_text(line),
            line.reason[:_MOST_REASON_CHARS],
        ]
        click.echo(printable("  ".join(each for each in told if each)))
        seen.append(one.state)
    is_over = len(seen) < len(wanted) and not (any_is_enough and seen)
    if is_over:
        seen.append("running")
    raise click.exceptions.Exit(exit_status_of_try(seen))


def _show(home: Home, tries: Tries, try_id: int) -> None:
    from core_sdk._analysis.evidence import read_evidence
    from core_sdk._home import open_view

    with open_view(home) as view:
        evidence = read_evidence(home, view, _most_telling(tries.by_id[try_id].trials))
    click.echo("\n".join(map(printable, evidence.text().split("\n"))))


def _most_telling(trials: Sequence[Facts]) -> int:
    failed = [each.row.trial_id for each in trials if each.row.state == "ERROR"]
    return failed[0] if failed else trials[0].row.trial_id
