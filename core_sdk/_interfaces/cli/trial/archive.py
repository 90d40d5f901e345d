"""`core-sdk trial export` and `trial import`: trials as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import click

from core_sdk._interfaces.cli._home import make_home
from core_sdk._interfaces.cli._ids import TrialIds
from core_sdk._interfaces.cli.home.commands import print_merged
from core_sdk._interfaces.signatures import Argument


def export(
    trials: TrialIds,
    file: Annotated[Path, Argument(metavar="FILE", help="A tar archive, which must not exist yet.")],
) -> None:
    """Write trials into one file, which `trial import` takes into another home.

    It has all that lies in the home: reports, output, media, code and checkpoints. Checkpoints in other storages stay
    there.
    """
    from core_sdk._home.moving.archive import export_trials

    export_trials(make_home(), trials, file)
    click.echo(f"wrote {len(set(trials))} trials to {file}")


def import_file(file: Annotated[Path, Argument(metavar="FILE", help="What `trial export` has written.")]) -> None:
    """Take the trials of an exported file into this home, under new ids. Nothing comes twice."""
    from core_sdk._home.moving.archive import import_trials

    print_merged(import_trials(make_home(), file))
