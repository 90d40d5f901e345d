"""The short way of a report that resembles the last one of its group."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from time import time
from typing import TypeAlias

from core_sdk._ground.data.waits import LEAST_S, DataWait
from core_sdk._ground.records import MAX_INT, Report
from core_sdk._home.journal import Journal
from core_sdk.core._train._ledger import NewestSteps

Record: TypeAlias = Callable[[object, object], bool]
"""A function that records a report of these steps and metrics if the short way suffices, and returns whether it did."""


def prepared_report(group: str, newest: NewestSteps, journal: Journal) -> Record:
    """Returns the short way of reports that have the names of the last one of their group, numbers, and a later step.

    Between two steps of a training, none of this is in the processor's caches. Each function, module and object that a
    report touches then takes up to a microsecond. So all that such a report needs is found here beforehand.
    """

    def record(
        steps_completed: object,
        metrics: object,
        isfinite: Callable[[float], bool] = isfinite,
        time: Callable[[], float] = time,
        make: type[Report] = Report,
        wait: DataWait = DataWait.of_process,
        least_s: float = LEAST_S,
        group: str = group,
        newest: NewestSteps = newest,
        journal: Journal = journal,
    ) -> bool:
        if type(metrics) is not dict or type(steps_completed) is not int:
            return False
        for value in metrics.values():
            if type(value) is float:
                if not isfinite(value):
                    return False
            elif type(value) is not int or not -MAX_INT <= value <= MAX_INT:
                return False
        with journal.lock:
            if not newest.step < steps_completed < MAX_INT or tuple(metrics) != newest.layout:
                return False
            newest.step = steps_completed
            loading_s = wait.take() if wait.seconds >= least_s else None
            journal.append_under_lock(make(time(), group, steps_completed, metrics, None, None, loading_s))
        return True

    return record
