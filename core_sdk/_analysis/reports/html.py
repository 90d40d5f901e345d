"""Media, tables and text as HTML that refers to nothing outside of itself."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from core_sdk._analysis.charts.svg import escaped
from core_sdk._ground.records import MediaFile, format_number, from_json

_MOST_ROWS = 20
_MOST_CHARS = 4000


def media_html(file: MediaFile, content: bytes) -> str | None:
    """Returns a medium as HTML, or None for one that cannot be shown without running what is in it."""
    kind, _, _ = file.media_type.partition("/")
    if kind in ("image", "audio", "video"):
        source = f"data:{file.media_type};base64,{base64.b64encode(content).decode()}"
        if kind == "image":
            return f'<img alt="{html.escape(file.caption)}" src="{html.escape(source)}">'
        return f'<{kind} controls src="{html.escape(source)}"></{kind}>'
    if file.kind == "text":
        return f"<pre>{html.escape(content.decode(errors='replace')[:_MOST_CHARS])}</pre>"
    draw = _DRAWN.get(file.kind)
    return None if draw is None else draw(from_json(msgspec.json.decode(content)))


def table_html(titles: Sequence[object], rows: Sequence[Sequence[object]], most: int | None = None) -> str:
    head = "".join(f"<th>{html_text(title)}</th>" for title in titles)
    body = "\n".join(f"<tr>{''.join(f'<td>{html_text(cell)}</td>' for cell in row)}</tr>" for row in rows[:most])
    left_out = f"<p>{len(rows) - most} more rows</p>" if most is not None and len(rows) > most else ""
    return f"<table>\n<tr>{head}</tr>\n{body}\n</table>{left_out}"


def html_text(value: object) -> str:
    """Returns a value as escaped text, so that nothing from a run is markup."""
    if value is None:
        return ""
    return "\n".join(map(escaped, str(format_number(value)).split("\n")))


def _table(value: dict[str, Any]) -> str:
    return table_html(value["columns"], value["rows"], _MOST_ROWS)


def _matrix(value: dict[str, Any]) -> str:
    labels = value["labels"]
    rows = [[label, *row] for label, row in zip(labels, value["matrix"], strict=True)]
    return table_html(["true", *labels], rows, _MOST_ROWS)


def _histogram(value: dict[str, Any]) -> str:
    first, last, most = value["edges"][0], value["edges"][-1], max(value["counts"], default=0) or 1
    width = last - first or 1
    bars = "".join(
        f'<rect x="{300 * (low - first) / width:.1f}" y="{80 - 80 * count / most:.1f}" '
        f'width="{300 * (high - low) / width:.1f}" height="{80 * count / most:.1f}"/>'
        for (low, high), count in zip(pairwise(value["edges"]), value["counts"], strict=True)
    )
    told = f"{format_number(first)} … {format_number(last)}"
    return f'<svg width="300" height="80" role="img" aria-label="Histogram" fill="#1f5fd6">{bars}</svg><p>{told}</p>'


_DRAWN: dict[str, Callable[[dict[str, Any]], str]] = {
    "table": _table,
    "confusion_matrix": _matrix,
    "histogram": _histogram,
}
