"""The part of a report that only a study has: the best over time, and the tree of its tries with what was decided."""

from __future__ import annotations

from collections.abc import Iterator

from core_sdk._analysis.charts.chart import Chart, ChartCurve
from core_sdk._analysis.charts.picture import Picture
from core_sdk._analysis.reports.html import html_text, table_html
from core_sdk._analysis.studies import (
    Board,
    BoardLine,
    best_curve,
    difference_text,
    ends,
    read_board,
    tree_of,
    value_text,
)
from core_sdk._home import Home, open_view
from core_sdk._home.rows import SeriesBucket

_MOST_ALARMED = 200
_INDENT = "· "
_TITLES = ("try", "n", "value", "difference to the parent", "decided", "hypothesis", "by", "alarms")


def study_html(home: Home, experiment_id: int) -> Iterator[str]:
    """Yields the parts of the document for an experiment that is a study; none for any other one."""
    study = home.experiment(experiment_id).read().study
    if study is None:
        return
    with open_view(home) as view:
        board = read_board(home, view, experiment_id, study, most_alarmed=_MOST_ALARMED)
    reading, rows = "smaller" if board.smaller_is_better else "larger", tree_of(board.tries)
    yield "<h2>The study</h2>"
    yield f"<p>{html_text(board.metric)} decides, {reading} is better; "
    yield f"{board.num_tries} tries, {board.num_failed} failed. "
    if board.noise is not None:
        yield f"Seeds of one try differ by {html_text(board.noise)} (standard deviation, pooled over all tries). "
    if board.num_lucky >= 0.5:
        yield f"By luck alone, about {board.num_lucky:.0f} tries look better beyond noise. "
    if board.best is not None:
        yield f"The best is {' > '.join(map(str, board.best_line))}."
    yield "</p>"
    yield from (f"<p>Alarm: {html_text(each)}</p>" for each in board.alarms)
    if best_curve(board):
        yield Picture([_best_chart(board)])._repr_html_()
    yield f'<div class="wide">{table_html(_TITLES, [_row(depth, one, board) for depth, one in rows])}</div>'


def _best_chart(board: Board) -> Chart:
    """Returns the curve of the best value over the time since the first try, and the values of all tries."""
    shown = [("the best", best_curve(board)), *(("a try", [point]) for point in ends(board))]
    curves = [ChartCurve(label, [_bucket(*point) for point in points]) for label, points in shown]
    return Chart(f"{board.metric}, over the seconds since the first try", curves)


def _row(depth: int, one: BoardLine, board: Board) -> list[object]:
    decided = one.verdict or ("" if one.state == "ended" else one.state)
    why = one.verdict_reason or ("" if one.state == "ended" else one.reason)
    return [
        f"{_INDENT * depth}{one.try_id}{' (best)' if one.try_id == board.best else ''}",
        f"{one.num_values} of {one.num_seeds}",
        value_text(one),
        difference_text(one),
        _joined(": ", decided, why),
        one.hypothesis,
        one.author,
        _joined("; ", *one.alarms),
    ]


def _joined(between: str, *words: str) -> str:
    return between.join(filter(None, words))


def _bucket(seconds: float, value: float) -> SeriesBucket:
    return SeriesBucket(seconds, seconds, 1, value, value, value)
