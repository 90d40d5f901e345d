"""A picture of charts, which a notebook shows and which can be saved in a file."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core_sdk._analysis.charts.chart import Chart
from core_sdk._analysis.charts.svg import PICTURE_FORMATS, svg, write_picture
from core_sdk.errors import NothingToDrawError


@dataclass(frozen=True, repr=False)
class Picture:
    """Static charts, one below the other. A notebook shows them without a server."""

    charts: Sequence[Chart]

    @property
    def svg(self) -> str:
        """The charts as SVG. Raises `NothingToDrawError`."""
        return svg(self._drawable())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a file whose name ends in .svg, .html, .pdf or .png.

        Raises `NothingToDrawError`, `MissingDependencyError` or `OSError`, and `ValueError` for another name.
        """
        if Path(path).suffix.lower() not in PICTURE_FORMATS:
            raise ValueError(f"the file's name must end in {', '.join(PICTURE_FORMATS)}, not {os.fspath(path)!r}")
        write_picture(Path(path), self._drawable())

    def __repr__(self) -> str:
        return f"<Picture of {', '.join(chart.title for chart in self.charts)}>"

    def _repr_html_(self) -> str:
        try:
            return self.svg
        except NothingToDrawError as error:
            return f"<p>{html.escape(str(error))}</p>"

    def _drawable(self) -> list[Chart]:
        drawable = [chart for chart in self.charts if chart.strokes]
        if not drawable:
            raise NothingToDrawError
        return drawable
