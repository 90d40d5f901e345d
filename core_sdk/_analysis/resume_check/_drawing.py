"""Charts of the curves of the undisturbed and the disturbed training where they part."""

from __future__ import annotations

from collections.abc import Sequence

from core_sdk._analysis.charts.chart import Chart, ChartCurve
from core_sdk._analysis.resume_check._report import MomentResult, ResumeReport
from core_sdk._home.rows import SeriesBucket


def parting_charts(report: ResumeReport) -> list[Chart]:
    """Returns a chart for each moment at which numbers differ: the metric that differs first, around that step."""
    return [_chart(each) for each in report.moments if each.curve]


def _chart(result: MomentResult) -> Chart:
    expected = [(each.step, each.expected) for each in result.curve]
    found = [(each.step, each.found) for each in result.curve if each.found is not None]
    curves = [ChartCurve("disturbed", _buckets(found)), ChartCurve("undisturbed", _buckets(expected))]
    is_shown = result.curve[0].step <= result.stopped_at <= result.curve[-1].step
    title = f"{result.differences[0].metric}: {result.moment}"
    return Chart(title, [each for each in curves if each.buckets], [result.stopped_at] if is_shown else [])


def _buckets(points: Sequence[tuple[int, float]]) -> list[SeriesBucket]:
    return [SeriesBucket(step, step, 1, value, value, value) for step, value in points]
