"""The trials that a command is about: by their numbers, their names, or a condition."""

from __future__ import annotations

from typing import Annotated

import typer

from core_sdk.errors import AmbiguousNameError
from core_sdk.tracking import open_view


def parse_trial(text: str) -> int:
    """Returns the number of the trial that is given by its number or its name.

    Raises `TrialNotFoundError` or `typer.BadParameter` for a name that no trial has, or several.
    """
    if text.isascii() and text.isdecimal() and int(text) > 0:
        return int(text)
    from core_sdk.cli._home import open_home  # slow to import

    with open_view(open_home()) as view:
        try:
            return view.trial(text).trial_id
        except AmbiguousNameError as error:
            raise typer.BadParameter(str(error)) from None


TrialId = Annotated[
    int, typer.Argument(metavar="ID", parser=parse_trial, help="The trial's number or name.", show_default=False)
]
TrialIds = Annotated[
    list[int],
    typer.Argument(metavar="ID…", parser=parse_trial, help="The trials' numbers or names.", show_default=False),
]
MaybeTrialIds = Annotated[
    list[int] | None,
    typer.Argument(metavar="ID…", parser=parse_trial, help="The trials' numbers or names.", show_default=False),
]
