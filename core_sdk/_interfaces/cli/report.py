"""`core-sdk report`: an experiment as one file to mail."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import click

from core_sdk._interfaces.cli._ids import Experiment
from core_sdk._interfaces.signatures import Option


def report(
    experiment: Experiment,
    output: Annotated[
        Path | None, Option("--output", "-o", metavar="FILE", help="The file.", show_default="report-ID.html")
    ] = None,
) -> None:
    """Write an experiment into one HTML file: its charts, trials and media, what mattered, and its configuration.

    The file needs no server and no network. Secrets are masked.
    """
    from core_sdk._analysis.reports import report_html
    from core_sdk._interfaces.cli._home import open_home

    path = output or Path(f"report-{experiment}.html")
    path.write_text(report_html(open_home(), experiment), "utf-8")
    click.echo(path)
