"""Draws curves as SVG, and converts the SVG to HTML or PNG."""

from __future__ import annotations

import html
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path

from core_sdk.charts.chart import Chart, Stroke, fraction, stroke
from core_sdk.errors import MissingDependencyError
from core_sdk.records import format_number
from core_sdk.tracking.rows import Bucket

PICTURE_FORMATS = (".svg", ".html", ".png")
_GREY = "#8c959f"
_COLORS = ("#1f6feb", "#d1242f", "#1a7f37", "#8250df", "#bf8700", "#0a7ea4", "#cf51a0", "#57606a")
_WIDTH, _HEIGHT = 800, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 20, 40, 56
_NUM_TICKS = 5
_LEAST_NUM_LABELS = 4


def write_picture(path: Path, charts: Sequence[Chart]) -> None:
    """Writes the charts in the format that the file's suffix names. Raises `MissingDependencyError` or `OSError`."""
    picture = svg(charts)
    match path.suffix.lower():
        case ".html":
            path.write_text(f"<!doctype html>\n<meta charset='utf-8'>\n<title>Core SDK</title>\n{picture}", "utf-8")
        case ".png":
            path.write_bytes(_png(picture))
        case _:
            path.write_text(picture, "utf-8")


def svg(charts: Sequence[Chart]) -> str:
    """Returns the charts as SVG, one below the other."""
    body = "\n".join(
        f'<g transform="translate(0 {index * _HEIGHT})">\n{chr(10).join(_chart(chart))}\n</g>'
        for index, chart in enumerate(charts)
    )
    size = f'width="{_WIDTH}" height="{_HEIGHT * len(charts)}" viewBox="0 0 {_WIDTH} {_HEIGHT * len(charts)}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12" fill="#24292f">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def _chart(chart: Chart) -> Iterator[str]:
    (first, last), (low, high) = chart.step_range, chart.value_range
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def x(steps: float) -> float:
        return round(_LEFT + fraction(steps, first, last) * (right - _LEFT), 1)

    def y(value: float) -> float:
        return round(bottom - fraction(value, low, high) * (bottom - _TOP), 1)

    yield f'<text x="{_LEFT}" y="22" font-size="15">{_escaped(chart.title)}</text>'
    for tick in range(_NUM_TICKS):
        part = tick / (_NUM_TICKS - 1)
        value = low * (1 - part) + high * part
        yield f'<path d="M{_LEFT} {y(value)}H{right}" stroke="#d0d7de"/>'
        yield f'<text x="{_LEFT - 6}" y="{y(value) + 4}" text-anchor="end">{format_number(value)}</text>'
        steps = first * (1 - part) + last * part
        shown = round(steps) if last - first >= _NUM_TICKS else steps
        yield f'<text x="{x(steps)}" y="{bottom + 18}" text-anchor="middle">{format_number(shown)}</text>'
    for steps in chart.marks:
        yield f'<path d="M{x(steps)} {_TOP}V{bottom}" stroke="#57606a" stroke-dasharray="4 3"/>'
        dx, anchor = (4, "start") if x(steps) < right / 2 else (-4, "end")
        label = f'text-anchor="{anchor}" fill="#57606a">{_escaped(chart.mark_label)}</text>'
        yield f'<text x="{x(steps) + dx}" y="{_TOP + 10}" {label}'
    colors = _colors(chart)
    for curve in reversed(chart.curves):
        color = colors[curve.label]
        for part_of_curve in _parts(curve.buckets):
            strokes = [(x(one.steps), y(one.low), y(one.mean), y(one.high)) for one in part_of_curve]
            band = [(at, top) for at, _, _, top in strokes] + [(at, base) for at, base, _, _ in reversed(strokes)]
            yield f'<polygon points="{_points(band)}" fill="{color}" stroke="{color}" opacity="0.25"/>'
            yield (
                f'<polyline points="{_points([(at, mean) for at, _, mean, _ in strokes])}" fill="none" '
                f'stroke="{color}" stroke-width="1.5" stroke-linecap="round"/>'
            )
        if curve.is_cut and (drawn := list(_parts(curve.buckets))):
            end = drawn[-1][-1]
            cross = "m-3 -3l6 6m-6 0l6 -6"
            yield f'<path d="M{x(end.steps)} {y(end.mean)}{cross}" stroke="{color}" stroke-width="1.5"/>'
    for index, (label, color) in enumerate(colors.items()):
        at = _LEFT + index * round((right - _LEFT) / max(_LEAST_NUM_LABELS, len(colors)))
        yield f'<rect x="{at}" y="{_HEIGHT - 22}" width="12" height="12" fill="{color}"/>'
        yield f'<text x="{at + 18}" y="{_HEIGHT - 12}">{_escaped(label)}</text>'


def _colors(chart: Chart) -> dict[str, str]:
    """Returns the color of each label."""
    cut = {curve.label for curve in chart.curves if curve.is_cut}
    return {label: _GREY if label in cut else _COLORS[index % len(_COLORS)] for index, label in enumerate(chart.labels)}


def _parts(buckets: Sequence[Bucket]) -> Iterator[list[Stroke]]:
    """Yields the stretches of a curve, which is interrupted where values are NaN or infinite."""
    part: list[Stroke] = []
    for one in map(stroke, buckets):
        if one is not None:
            part.append(one)
        elif part:
            yield part
            part = []
    if part:
        yield part


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x},{y}" for x, y in points)


def _escaped(text: str) -> str:
    """Returns the text for XML. XML allows no control characters: characters that cannot be printed are replaced."""
    return html.escape("".join(char if char.isprintable() else "�" for char in text))


def _png(picture: str) -> bytes:
    if importlib.util.find_spec("resvg_py") is None:
        raise MissingDependencyError("resvg-py", extra="png", purpose="a picture in PNG")
    import resvg_py

    return bytes(resvg_py.svg_to_bytes(svg_string=picture, zoom=2))
