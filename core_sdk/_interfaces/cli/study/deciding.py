"""`core-sdk keep`, `core-sdk discard` and `core-sdk code`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from core_sdk._home.finding.studies import find_try
from core_sdk._interfaces.cli._home import open_home
from core_sdk._interfaces.cli._ids import TrialId, trial_option
from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.render.text import printable
from core_sdk._interfaces.signatures import Argument, Option

if TYPE_CHECKING:
    from core_sdk._execution.studies import DecidedTry

Why = Annotated[str, Argument(help="The reason.", show_default=False)]


def keep(
    trial_id: TrialId,
    why: Why,
    branch: Annotated[
        str, Option(metavar="NAME", help="Move this branch of git on to the code of the try, or make it.")
    ] = "",
) -> None:
    """Keep a try: the next ones vary it. Warns where noise may explain its gain.

    core-sdk keep 4 "twice the accuracy, beyond noise"
    """
    from core_sdk._execution.studies import keep as keep_try

    _tell(keep_try(open_home(), trial_id, why, branch=branch), "keep")


def discard(
    trial_id: TrialId,
    why: Why,
    restore: Annotated[
        bool,
        Option(
            "--restore", help="Give this directory the parent's code back, unless it has changes that are in no try."
        ),
    ] = False,
) -> None:
    """Discard a try. Warns where it is better beyond noise.

    core-sdk discard 4 "no better than its parent" --restore
    """
    from core_sdk._execution.studies import discard as discard_try

    decided = discard_try(open_home(), trial_id, why, restore_in=Path.cwd() if restore else None)
    _tell(decided, "discard")
    if decided.restored is not None:
        click.echo(f"restored the parent's code: {', '.join(decided.restored[:10]) or 'nothing differs'}")


def code(
    trial_id: TrialId,
    diff: Annotated[int | None, trial_option("Compare with this try.", "its parent")] = None,
    checkout: Annotated[
        Path | None, Option(metavar="DIR", help="Unpack the code into this new directory.", show_default=False)
    ] = None,
    every: Annotated[bool, Option("--all", help="All of the difference, and not only 4 KB.")] = False,
) -> None:
    """Show which code a try has run: its commit, its digest, and its difference to that of the parent.

    core-sdk code 4
    core-sdk code 4 --diff 2
    core-sdk code 4 --checkout /tmp/of-4
    """
    from core_sdk._analysis.evidence import MOST_BYTES, bounded
    from core_sdk._analysis.studies import imported_elsewhere
    from core_sdk._execution.studies import check_out, code_difference

    home = open_home()
    found = find_try(home, trial_id)
    one, record = found.one, found.code
    if checkout is not None:
        check_out(home, record, checkout)
        click.echo(f"unpacked the code of try {one.try_id} into {checkout / record.directory}")
        return
    told = [f"try {one.try_id}: sha256 {record.sha256[:16]}" + (f", commit {record.commit}" if record.commit else "")]
    told += [f"linked, and no part of it: {', '.join(record.linked)}"] if record.linked else []
    told += imported_elsewhere(home, one)
    if (compared := code_difference(home, found, diff)) is not None:
        other, lines = compared
        told += [f"against {other.try_id}:", *lines] if lines else [f"the same as that of {other.try_id}"]
    told = list(map(printable, told))
    click.echo("\n".join(told) if every else bounded(MOST_BYTES, told))


def _tell(decided: DecidedTry, verdict: str) -> None:
    if decided.warning:
        say(decided.warning)
    click.echo(f"try {decided.try_id}: {verdict}")
