"""The options that say in which form a command prints its results."""

from __future__ import annotations

from typing import Annotated

import typer

from core_sdk._interfaces.render.fields import parse_fields
from core_sdk._interfaces.render.output import LIMIT, Form

AsJson = Annotated[
    bool,
    typer.Option("--json", help='Print JSON; numbers that JSON lacks are "NaN", "Infinity" and "-Infinity".'),
]
AsCsv = Annotated[
    bool, typer.Option("--csv", help="Print CSV; text that a spreadsheet would take for a formula gets a leading '.")
]

Fields = Annotated[
    str,
    typer.Option(
        metavar="NAME,…",
        help="Only these fields, as JSON, or CSV with --csv; a dot leads into an object: trial_id,metrics.validation.",
        show_default="all",
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="N",
        help="The newest N, or with an order the first N; 0: all.",
        show_default=f"all; of a table that no terminal shows, {LIMIT}",
    ),
]


def choose_form(as_json: bool, as_csv: bool = False, fields: str = "") -> Form:
    """Returns the form that options ask for. Raises `typer.BadParameter`."""
    if as_json and as_csv:
        raise typer.BadParameter("give --json or --csv, not both")
    try:
        names = parse_fields(fields) if fields else ()
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--fields") from None
    return Form(as_json or bool(names and not as_csv), as_csv, names)
