"""A logger with the two methods by which training repositories log: `log()` and `close()`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from core_sdk._distributed import DistributedContext, has_process_group
from core_sdk._ground.environment import is_first_rank
from core_sdk._ground.pickling import OfOneProcess
from core_sdk._ground.records import check_name, split_metric_name
from core_sdk.core._context import Context
from core_sdk.core._init import init
from core_sdk.core._ranks import num_ranks
from core_sdk.core._train import TRAINING, VALIDATION


class Logger(OfOneProcess):
    """Reports dicts of metrics to a Context, which the functions that log need not know.

    Only the logger of rank 0 reports, unless it is told otherwise: on other ranks its calls do nothing.
    """

    def __init__(self, context: Context | None = None, *, all_ranks: bool = False, **arguments: Any) -> None:
        """Reports to `context`, or to the Context that this process has open.

        If there is none, the logger begins one by `init()`, with the `arguments` given here, and closes it with itself.
        Then only rank 0 has a Context: where a launcher has started several ranks, any of them may make a logger, and
        the loggers of the others do nothing. A Context of all ranks is begun by `init(distributed=…)`; with `all_ranks`
        each of them reports.

        Raises `TypeError` for arguments of `init()` while a Context is open, and `RuntimeError` if several are open.
        """
        if context is not None and not isinstance(context, Context):
            raise TypeError(f"Logger() takes a Context, not {context!r}; the arguments of init() are given by name")
        found = Context.current() if context is None else context
        if found is not None and arguments:
            raise TypeError(
                f"Logger() was given {', '.join(arguments)} while {found!r} is open: give these arguments to its "
                "init(), or close it before"
            )
        self._opened = _opened(arguments) if found is None else None
        self._context = found or self._opened
        self._reports = self._context is not None and (all_ranks or self._context.distributed.is_chief)
        self._places: dict[str, tuple[str, str]] = {}
        self._names: dict[tuple[str, str], str] = {}

    @property
    def context(self) -> Context | None:
        """The Context to which the logger reports; None on a rank that does not report."""
        return self._context if self._reports else None

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """Reports metrics after `step` steps, counted over the whole training.

        A nested dict counts as names with slashes. What stands before the first slash is the group of a metric: "train"
        means "training"; "val", "valid" and "eval" mean "validation", by which searches compare trials; other groups
        keep their names. Without a slash it is "training". In "training" and "validation" are only numbers: a text is
        kept in the group "text", under its whole name. Each group is a report, with the values and the errors of
        `report_metrics`. Further metrics of the step may be logged by later calls. Of a metric that is logged again at
        a step, the later value counts. If a report is refused, the reports of the groups before it are kept. Raises
        `ValueError` for two names of the same metric.
        """
        if not self._reports or self._context is None:
            return
        groups: dict[str, dict[str, Any]] = {}
        for given, value in _flat(metrics):
            group, name = self._places.get(given) or self._placed(given)
            if isinstance(value, str) and group in (TRAINING, VALIDATION):
                group, name = "text", given
            of_group = groups.setdefault(group, {})
            if name in of_group:
                raise ValueError(f"metric {given!r} is given twice, once in a nested dict")
            of_group[name] = value
        for group, of_group in groups.items():
            # Scripts that log a step in parts repeat their counters, such as the time so far.
            self._context.train.report_metrics(group, step, of_group, replace=True)

    def close(self) -> None:
        """Closes the Context if the logger has begun it, as `Context.close()` does; else does nothing."""
        if self._opened is not None:
            self._opened.close()

    def _placed(self, given: str) -> tuple[str, str]:
        """Returns the group of a metric, and its name there. Raises `ValueError` if another metric is at this place."""
        place = split_metric_name(given)
        other = self._names.setdefault(place, given)
        if other != given:
            group, name = place
            raise ValueError(f"metrics {other!r} and {given!r} would both be {name!r} of group {group!r}: rename one")
        self._places[given] = place
        return place


def _opened(arguments: Mapping[str, Any]) -> Context | None:
    """Returns a new Context, which is started; None on other ranks than 0, if ranks were started."""
    if "distributed" not in arguments and num_ranks() > 1:
        if not _is_rank_0():
            return None
        arguments = {**arguments, "distributed": DistributedContext()}
    context = init(**arguments)
    context.start()
    return context


def _is_rank_0() -> bool:
    return bool(sys.modules["torch.distributed"].get_rank() == 0) if has_process_group() else is_first_rank()


def _flat(metrics: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(metrics, Mapping):
        raise TypeError(f"metrics must be a dict, not {type(metrics).__name__}")
    for name, value in metrics.items():
        full_name = prefix + check_name("the metric name", name)
        if isinstance(value, Mapping):
            yield from _flat(value, f"{full_name}/")
        else:
            yield full_name, value
