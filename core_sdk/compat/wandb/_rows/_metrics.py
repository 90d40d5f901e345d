"""The rules of `define_metric()`: which metrics have a horizontal axis of their own, and which summary figures."""

from __future__ import annotations

from dataclasses import dataclass, replace

from core_sdk._ground.records import Metric

_FIGURES = ("min", "max", "mean", "first", "last", "best", "none")


@dataclass(frozen=True)
class MetricDefinition:
    """The definition of a metric, or of all whose names begin as `name` does before its `*`."""

    name: str
    step_metric: str | None = None
    """The metric over whose values this one is drawn."""
    has_step: bool = True
    """Whether the newest value of `step_metric` is recorded with each value of this one."""
    figures: tuple[str, ...] = ()


class MetricDefinitions:
    """The definitions of a run. That of the very name has precedence, then the longest beginning."""

    def __init__(self) -> None:
        self._by_name: dict[str, MetricDefinition] = {}
        self._found: dict[str, MetricDefinition] = {}

    def define(self, definition: MetricDefinition, *, overwrite: bool) -> None:
        earlier = self._by_name.get(definition.name)
        if earlier is not None and not overwrite:
            definition = replace(
                definition,
                step_metric=definition.step_metric or earlier.step_metric,
                figures=definition.figures or earlier.figures,
            )
        self._by_name[definition.name] = definition
        self._found.clear()

    def of(self, name: str) -> MetricDefinition:
        """Returns the definition of a metric; one that says nothing if it has none.

        The names of nested values, which have slashes here, have dots in wandb's definitions.
        """
        if (found := self._found.get(name)) is None:
            spelled = name, name.replace("/", ".")
            globs = [each for each in self._by_name if each.endswith("*")]
            fitting = [each for each in globs if any(one.startswith(each[:-1]) for one in spelled)]
            best = next((one for one in spelled if one in self._by_name), max(fitting, key=len, default=""))
            found = self._found[name] = self._by_name.get(best) or MetricDefinition(name)
        return found


def summary_figures(summary: str | None, goal: str | None) -> tuple[str, ...]:
    """Returns the figures that `define_metric(summary=…, goal=…)` names. Raises `ValueError` for unknown ones."""
    figures = [figure.strip().lower() for figure in (summary or "").split(",") if figure.strip()]
    if unknown := [figure for figure in figures if figure not in _FIGURES]:
        raise ValueError(f"define_metric(summary={summary!r}): {unknown[0]!r} is none of {', '.join(_FIGURES)}")
    best = "max" if (goal or "").lower().startswith("max") else "min"
    return tuple(best if figure == "best" else figure for figure in figures)


class SummaryFigures:
    """The figures of the values that a metric has had."""

    def __init__(self) -> None:
        self._total: float = 0
        self._count = 0
        self._by_name: dict[str, Metric] = {}

    def add(self, value: Metric) -> None:
        named = self._by_name
        self._total, self._count = self._total + value, self._count + 1
        if not named:
            named.update(first=value, min=value, max=value)
        named["min"], named["max"] = min(named["min"], value), max(named["max"], value)
        named["last"], named["mean"] = value, self._total / self._count

    def chosen(self, figures: tuple[str, ...]) -> dict[str, Metric]:
        return {figure: self._by_name[figure] for figure in figures if figure in self._by_name}
