"""`core-sdk check-wandb`: which names of wandb a script needs that `core_sdk.compat.wandb` does not have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import click

from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.signatures import Argument


def check_wandb(
    files: Annotated[list[Path], Argument(metavar="FILE...", help="Scripts that import wandb, or did.")],
) -> None:
    """Name the lines of scripts that use what core_sdk.compat.wandb does not have, and say what to use instead.

    The scripts are read and not run. They may import wandb itself still. Exits with 1 if anything is missing.
    """
    from core_sdk.compat.wandb._checking import missing_names  # slow to import

    is_missing = False
    for file in files:
        try:
            found = missing_names(file.read_text(encoding="utf-8"))
        except (SyntaxError, ValueError) as error:
            raise click.BadParameter(f"{file} is no script of Python: {error}") from error
        for line, problem in found or ():
            click.echo(f"{file}:{line}: {problem}")
        is_missing = is_missing or bool(found)
        if not found:
            say(f"{file}: {'nothing is missing' if found is not None else 'it does not import wandb'}")
    if is_missing:
        raise click.exceptions.Exit(1)
