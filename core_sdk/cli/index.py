"""`core-sdk index …`."""

from __future__ import annotations

import typer

from core_sdk.cli._group import command_group
from core_sdk.cli._home import open_home

app = command_group()


@app.callback()
def _group() -> None: ...


@app.command()
def rebuild() -> None:
    """Build the index again from the journals."""
    from core_sdk.tracking.index import Index  # a database, which other commands may not need

    result = Index.rebuild(open_home())
    typer.echo(f"indexed {result.num_trials} trials with {result.num_points} points")
    if result.num_bad_lines:
        typer.echo(f"{result.num_bad_lines} damaged lines were skipped", err=True)
