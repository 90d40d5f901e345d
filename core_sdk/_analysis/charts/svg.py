"""Draws curves as SVG, and converts the SVG to HTML, PDF or PNG."""

from __future__ import annotations

import html
import importlib.util
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from core_sdk._analysis.charts.chart import Chart, Stroke, fraction, stroke
from core_sdk._analysis.charts.ticks import round_ticks
from core_sdk._ground.records import format_number
from core_sdk._home.rows import SeriesBucket
from core_sdk.errors import MissingDependencyError, NothingToDrawError

PICTURE_FORMATS = (".svg", ".html", ".pdf", ".png")
_GREY = "#8c959f"
_COLORS = ("#1f6feb", "#d1242f", "#1a7f37", "#8250df", "#bf8700", "#0a7ea4", "#cf51a0", "#57606a")
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 20, 40, 56
_LABEL = 18
_LEAST_NUM_LABELS = 4
_PT_PER_PX = 0.75


@dataclass(frozen=True)
class Look:
    """The settings by which each chart of a picture is drawn."""

    title: str | None = None
    """The title of all charts; with None each chart has its own."""
    x_label: str = ""
    y_label: str = ""
    is_logarithmic: bool = False
    """Whether the vertical axis is. It leaves out what is not above 0."""
    width: int = 800
    height: int = 340


def write_picture(path: Path, charts: Sequence[Chart], look: Look = Look()) -> None:
    """Writes the charts in the format that the file's suffix names.

    Raises `MissingDependencyError`, `NothingToDrawError` or `OSError`.
    """
    picture = svg(charts, look)
    match path.suffix.lower():
        case ".html":
            path.write_text(f"<!doctype html>\n<meta charset='utf-8'>\n<title>Core SDK</title>\n{picture}", "utf-8")
        case ".pdf":
            path.write_bytes(_pdf(picture, look.width, look.height * len(charts)))
        case ".png":
            path.write_bytes(_png(picture))
        case _:
            path.write_text(picture, "utf-8")


def svg(charts: Sequence[Chart], look: Look = Look()) -> str:
    """Returns the charts as SVG, one below the other. Raises `NothingToDrawError`."""
    body = "\n".join(
        f'<g transform="translate(0 {index * look.height})">\n{chr(10).join(_chart(chart, look))}\n</g>'
        for index, chart in enumerate(charts)
    )
    height = look.height * len(charts)
    size = f'width="{look.width}" height="{height}" viewBox="0 0 {look.width} {height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12" fill="#24292f">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def _chart(chart: Chart, look: Look) -> Iterator[str]:
    (first, last), (low, high) = chart.step_range, _value_range(chart, look)
    left = _LEFT + (_LABEL if look.y_label else 0)
    right, bottom = look.width - _RIGHT, look.height - _BOTTOM - (_LABEL if look.x_label else 0)
    bend = math.log10 if look.is_logarithmic else float

    def x(steps: float) -> float:
        return round(left + fraction(steps, first, last) * (right - left), 1)

    def y(value: float) -> float:
        return round(bottom - fraction(bend(max(value, low)), bend(low), bend(high)) * (bottom - _TOP), 1)

    title = chart.title if look.title is None else look.title
    yield f'<text x="{left}" y="22" font-size="15">{escaped(title)}</text>'
    for value in round_ticks(low, high, is_logarithmic=look.is_logarithmic):
        yield f'<path d="M{left} {y(value)}H{right}" stroke="#d0d7de"/>'
        yield f'<text x="{left - 6}" y="{y(value) + 4}" text-anchor="end">{format_number(value)}</text>'
    is_whole = first == int(first) and last == int(last) and last - first > 1
    for steps in (tick for tick in round_ticks(first, last) if not is_whole or tick == int(tick)):
        yield f'<text x="{x(steps)}" y="{bottom + 18}" text-anchor="middle">{format_number(steps)}</text>'
    if look.x_label:
        at = f'x="{(left + right) / 2}" y="{bottom + 22 + _LABEL}"'
        yield f'<text {at} text-anchor="middle">{escaped(look.x_label)}</text>'
    if look.y_label:
        at = f'transform="translate(16 {(_TOP + bottom) / 2}) rotate(-90)"'
        yield f'<text {at} text-anchor="middle">{escaped(look.y_label)}</text>'
    for steps in chart.marks:
        yield f'<path d="M{x(steps)} {_TOP}V{bottom}" stroke="#57606a" stroke-dasharray="4 3"/>'
        dx, anchor = (4, "start") if x(steps) < right / 2 else (-4, "end")
        label = f'text-anchor="{anchor}" fill="#57606a">{escaped(chart.mark_label)}</text>'
        yield f'<text x="{x(steps) + dx}" y="{_TOP + 10}" {label}'
    colors = _colors(chart)
    for curve in reversed(chart.curves):
        color = colors[curve.label]
        for part_of_curve in _parts(curve.buckets, look):
            strokes = [(x(one.steps), y(one.low), y(one.mean), y(one.high)) for one in part_of_curve]
            band = [(at, top) for at, _, _, top in strokes] + [(at, base) for at, base, _, _ in reversed(strokes)]
            yield f'<polygon points="{_points(band)}" fill="{color}" stroke="{color}" opacity="0.25"/>'
            yield (
                f'<polyline points="{_points([(at, mean) for at, _, mean, _ in strokes])}" fill="none" '
                f'stroke="{color}" stroke-width="1.5" stroke-linecap="round"/>'
            )
        if curve.is_cut and (drawn := list(_parts(curve.buckets, look))):
            end = drawn[-1][-1]
            cross = "m-3 -3l6 6m-6 0l6 -6"
            yield f'<path d="M{x(end.steps)} {y(end.mean)}{cross}" stroke="{color}" stroke-width="1.5"/>'
    for index, (label, color) in enumerate(colors.items()):
        place = left + index * round((right - left) / max(_LEAST_NUM_LABELS, len(colors)))
        yield f'<rect x="{place}" y="{look.height - 22}" width="12" height="12" fill="{color}"/>'
        yield f'<text x="{place + 18}" y="{look.height - 12}">{escaped(label)}</text>'


def _value_range(chart: Chart, look: Look) -> tuple[float, float]:
    if not look.is_logarithmic:
        return chart.value_range
    values = [value for one in chart.strokes for value in (one.low, one.mean, one.high) if value > 0]
    if not values:
        raise NothingToDrawError(f"no value of {chart.title} is above 0, as a logarithmic axis needs it")
    return min(values), max(values)


def _colors(chart: Chart) -> dict[str, str]:
    """Returns the color of each label."""
    cut = {curve.label for curve in chart.curves if curve.is_cut}
    return {label: _GREY if label in cut else _COLORS[index % len(_COLORS)] for index, label in enumerate(chart.labels)}


def _parts(buckets: Sequence[SeriesBucket], look: Look) -> Iterator[list[Stroke]]:
    """Yields the stretches of a curve, which is interrupted where values are NaN, infinite or have no logarithm."""
    part: list[Stroke] = []
    for one in map(stroke, buckets):
        if one is not None and (not look.is_logarithmic or one.mean > 0):
            part.append(one)
        elif part:
            yield part
            part = []
    if part:
        yield part


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x},{y}" for x, y in points)


def escaped(text: str) -> str:
    """Returns the text for XML. XML allows no control characters: characters that cannot be printed are replaced."""
    return html.escape("".join(char if char.isprintable() else "�" for char in text))


def _pdf(picture: str, width: int, height: int) -> bytes:
    """Returns one page of the picture's size. Lines stay lines, and text is text in a font that the file holds."""
    if importlib.util.find_spec("typst") is None:
        raise MissingDependencyError("typst", extra="pdf", purpose="a picture in PDF")
    import typst

    size = f"width: {width * _PT_PER_PX}pt, height: {height * _PT_PER_PX}pt, margin: 0pt"
    page = f'#set page({size})\n#image(bytes(sys.inputs.picture), format: "svg", width: 100%)'
    return bytes(typst.compile(page.encode(), sys_inputs={"picture": picture}))


def _png(picture: str) -> bytes:
    if importlib.util.find_spec("resvg_py") is None:
        raise MissingDependencyError("resvg-py", extra="png", purpose="a picture in PNG")
    import resvg_py

    return bytes(resvg_py.svg_to_bytes(svg_string=picture, zoom=2))
