"""Tells in words what a merge or an import has done."""

from __future__ import annotations

import typer

from core_sdk.cli._failures import ExitCode
from core_sdk.cli._messages import say
from core_sdk.tracking.moving.merging import Merged


def print_merged(merged: Merged) -> None:
    """Prints what was taken, and what was not; exits with 1 if something was left."""
    typer.echo(f"{len(merged.taken)} trials were taken, {len(merged.known)} were here already")
    for trial_id, here in merged.taken.items():
        typer.echo(f"trial {trial_id} is trial {here} here")
    for left in merged.left:
        say(f"left: {left}")
    if merged.left:
        raise typer.Exit(ExitCode.FAILURE)
