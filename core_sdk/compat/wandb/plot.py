"""Charts of tables: the table is kept, and a confusion matrix as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core_sdk import media
from core_sdk.compat.wandb._missing import missing
from core_sdk.compat.wandb._values import Table


def confusion_matrix(
    probs: Any = None,
    y_true: Any = None,
    preds: Any = None,
    class_names: Sequence[str] | None = None,
    title: str = "",
    split_table: bool = False,
) -> media.ConfusionMatrix:
    """Counts predictions, or the most probable classes, for each true class."""
    if probs is not None:
        preds = [max(range(len(row)), key=list(row).__getitem__) for row in probs]
    return media.ConfusionMatrix(targets=y_true, predictions=preds, labels=class_names, caption=title)


def bar(table: Table, label: str, value: str, title: str = "", split_table: bool = False) -> Table:
    """Returns the table with the title."""
    return _titled(table, title)


def histogram(table: Table, value: str, title: str = "", split_table: bool = False) -> Table:
    """Returns the table with the title."""
    return _titled(table, title)


def line(table: Table, x: str, y: str, stroke: str | None = None, title: str = "", split_table: bool = False) -> Table:
    """Returns the table with the title."""
    return _titled(table, title)


def scatter(table: Table, x: str, y: str, title: str = "", split_table: bool = False) -> Table:
    """Returns the table with the title."""
    return _titled(table, title)


def line_series(
    xs: Any, ys: Any, keys: Sequence[str] | None = None, title: str = "", xname: str = "x", split_table: bool = False
) -> Table:
    """Returns a table with a row for each point: its line, x and y."""
    lines = list(ys)
    places = list(xs) if len(xs) and isinstance(xs[0], (list, tuple)) else [xs] * len(lines)
    names = keys or [f"line_{number}" for number in range(len(lines))]
    points = [
        [name, x, y]
        for name, along, values in zip(names, places, lines, strict=True)
        for x, y in zip(along, values, strict=True)
    ]
    return Table(columns=["lineKey", xname, "lineVal"], data=points, title=title)


def _titled(table: Table, title: str) -> Table:
    return Table(columns=table.columns, data=table.data, title=title)


def __getattr__(name: str) -> Any:
    raise AttributeError(missing(f"wandb.plot.{name}"))
