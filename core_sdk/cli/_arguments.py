"""Arguments and options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Force = Annotated[
    bool, typer.Option("--force", help="Also with a checkpoint that is pinned, or that another trial began with.")
]
TrialId = Annotated[int, typer.Argument(metavar="ID", min=1, help="The trial's number.", show_default=False)]
TrialIds = Annotated[list[int], typer.Argument(metavar="ID…", min=1, help="The trials' numbers.", show_default=False)]
Metrics = Annotated[
    list[str] | None, typer.Option("--metric", metavar="NAME", help="Only this metric; may be repeated.")
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Draw into this file; its name ends in .svg, .html or .png."),
]
Labels = Annotated[list[str], typer.Argument(metavar="LABEL…", help="The labels.", show_default=False)]
Remove = Annotated[bool, typer.Option("--remove", help="Take the labels away.")]
SmallerIsBetter = Annotated[
    bool | None, typer.Option("--smaller-is-better/--larger-is-better", help="How to read it.", show_default="smaller")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Experiment = Annotated[
    str, typer.Argument(metavar="EXPERIMENT", help="Its number, or else its whole name.", show_default=False)
]


def parse_experiment(text: str) -> int | str:
    """The id, if the text is a number; else the name."""
    return int(text) if text.isascii() and text.isdigit() else text
