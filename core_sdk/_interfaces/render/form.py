"""The options that say in which form a command prints its results."""

from __future__ import annotations

from typing import Annotated

import click

from core_sdk._interfaces.render.fields import parse_fields
from core_sdk._interfaces.render.output import LIMIT, Form
from core_sdk._interfaces.signatures import Option

AsJson = Annotated[
    bool,
    Option("--json", help='Print JSON; numbers that JSON lacks are "NaN", "Infinity" and "-Infinity".'),
]
AsCsv = Annotated[
    bool, Option("--csv", help="Print CSV; text that a spreadsheet would take for a formula gets a leading '.")
]

Fields = Annotated[
    str,
    Option(
        metavar="NAME,…",
        help="Only these fields, as JSON, or CSV with --csv; a dot leads into an object: trial_id,metrics.validation.",
        show_default="all",
    ),
]
Limit = Annotated[
    int | None,
    Option(
        min=0,
        metavar="N",
        help="The newest N, or with an order the first N; 0: all.",
        show_default=f"all; of a table that no terminal shows, {LIMIT}",
    ),
]


def choose_form(as_json: bool, as_csv: bool = False, fields: str = "") -> Form:
    """Returns the form that options ask for. Raises `click.BadParameter`."""
    if as_json and as_csv:
        raise click.BadParameter("give --json or --csv, not both")
    try:
        names = parse_fields(fields) if fields else ()
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--fields") from None
    return Form(as_json or bool(names and not as_csv), as_csv, names)
