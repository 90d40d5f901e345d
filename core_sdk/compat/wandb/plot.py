"""Charts of tables: the table is kept, and a confusion matrix as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

from core_sdk import media
from core_sdk.compat.wandb._missing import missing
from core_sdk.compat.wandb._values import Table

_MAX_POINTS = 1000
"""The most points of a class's curve."""


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


def roc_curve(
    y_true: Any,
    y_probas: Any,
    labels: Sequence[str] | None = None,
    classes_to_plot: Sequence[Any] | None = None,
    title: str = "ROC Curve",
    split_table: bool = False,
) -> Table:
    """Returns a table of the rates of false and true positives of each class, at each of its probabilities."""
    points = []
    for name, ranked, num_hits in _ranked_classes(y_true, y_probas, labels, classes_to_plot):
        num_others = max(1, len(ranked) - num_hits)
        counts = [(0, 0), *_counts(ranked)]
        points += _thinned([[name, (taken - hits) / num_others, hits / num_hits] for taken, hits in counts])
    return Table(columns=["class", "fpr", "tpr"], data=points, title=title)


def pr_curve(
    y_true: Any,
    y_probas: Any,
    labels: Sequence[str] | None = None,
    classes_to_plot: Sequence[Any] | None = None,
    interp_size: int = 21,
    title: str = "Precision-Recall Curve",
    split_table: bool = False,
) -> Table:
    """Returns a table of the precision and recall of each class, at each of its probabilities."""
    points = []
    for name, ranked, num_hits in _ranked_classes(y_true, y_probas, labels, classes_to_plot):
        points += _thinned([[name, hits / taken, hits / num_hits] for taken, hits in _counts(ranked)])
    return Table(columns=["class", "precision", "recall"], data=points, title=title)


def _ranked_classes(
    y_true: Any, y_probas: Any, labels: Sequence[str] | None, chosen: Sequence[Any] | None
) -> Iterator[tuple[Any, list[tuple[float, bool]], int]]:
    """Yields each class with its samples, the most probable first: the probability, and whether it is the class."""
    true, probas = _listed(y_true), _listed(y_probas)
    for place, each in enumerate(sorted(set(true))):
        if chosen is None or each in _listed(chosen):
            samples = zip(probas, true, strict=True)
            ranked = sorted(((row[place], one == each) for row, one in samples), key=itemgetter(0), reverse=True)
            yield labels[each] if labels is not None and isinstance(each, int) else each, ranked, true.count(each)


def _counts(ranked: Sequence[tuple[float, bool]]) -> Iterator[tuple[int, int]]:
    """Yields, for each probability, how many samples have it or a higher one, and how many of these are the class."""
    hits = 0
    for taken, (probability, is_hit) in enumerate(ranked, start=1):
        hits += is_hit
        if taken == len(ranked) or ranked[taken][0] != probability:
            yield taken, hits


def _thinned(points: list[list[Any]]) -> list[list[Any]]:
    step = -(-len(points) // _MAX_POINTS)
    return [*points[:-1:step], *points[-1:]]


def _listed(values: Any) -> list[Any]:
    return list(values.tolist() if hasattr(values, "tolist") else values)


def _titled(table: Table, title: str) -> Table:
    return Table(columns=table.columns, data=table.data, title=title)


def __getattr__(name: str) -> Any:
    raise AttributeError(missing(f"wandb.plot.{name}"))
