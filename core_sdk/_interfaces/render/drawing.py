"""Draws charts in the terminal, or into a file."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from core_sdk._analysis.charts.chart import Chart
from core_sdk._analysis.charts.curves import PICTURE_BUCKETS
from core_sdk._interfaces.render import plot
from core_sdk._interfaces.render.text import printable
from core_sdk.errors import NothingToDrawError

if TYPE_CHECKING:
    from core_sdk._analysis.charts.svg import Look


def check_format(to: Path | None) -> None:
    """Raises `click.BadParameter` for a file whose name does not say how to draw it."""
    from core_sdk._analysis.charts.svg import PICTURE_FORMATS

    if to is not None and to.suffix.lower() not in PICTURE_FORMATS:
        raise click.BadParameter(f"the file's name must end in {', '.join(PICTURE_FORMATS)}", param_hint="--output")


def num_buckets(to: Path | None) -> int:
    """Returns how many points of a curve can be told apart."""
    return PICTURE_BUCKETS if to is not None else plot.num_buckets(_width())


def draw_charts(charts: Sequence[Chart], to: Path | None, look: Look | None = None) -> None:
    """Draws charts one below the other, into the file `to` or in the terminal. Only files have a `look`.

    Raises `MissingDependencyError`, `NothingToDrawError` or `OSError`.
    """
    if to is None:
        if look is not None:
            raise click.BadParameter("--title, --x-label, --y-label, --log-y and --size are for a file: give --output")
        _print_charts(charts)
        return
    from core_sdk._analysis.charts.svg import Look, write_picture

    drawable = [chart for chart in charts if chart.strokes]
    if not drawable:
        raise NothingToDrawError
    if look is not None and look.title is not None and len(drawable) > 1:
        raise click.BadParameter("--title is the title of one chart: choose one with --metric")
    write_picture(to, drawable, look or Look())
    click.echo(to)


def _print_charts(charts: Sequence[Chart]) -> None:
    for chart in charts:
        print(printable(chart.title))
        print("\n".join(plot.plot(chart, width=_width()) or ["  (no finite values)"]))
        print()
    if not charts:
        print("No reports yet.")


def _width() -> int:
    return shutil.get_terminal_size().columns
