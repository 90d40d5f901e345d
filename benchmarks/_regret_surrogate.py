"""LCBench's trainings, as YAHPO Gym's surrogate knows them: the accuracy of seven hyperparameters after each epoch."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

NUM_EPOCHS = 52
_CHUNKS = (3, 13, NUM_EPOCHS)
Point = dict[str, float]
RANGES: dict[str, tuple[str, float, float]] = {
    "batch_size": ("log", 16, 512),
    "learning_rate": ("log", 1e-4, 1e-1),
    "momentum": ("double", 0.1, 0.99),
    "weight_decay": ("double", 1e-5, 1e-1),
    "num_layers": ("int", 1, 5),
    "max_units": ("log", 64, 1024),
    "max_dropout": ("double", 0.0, 1.0),
}
"""The search space: the kind, and both ends. The names are in the order in which the surrogate takes them."""
TASKS = (
    "3945", "34539", "126026", "146212", "167149", "167161", "167181", "167185",
    "167200", "168329", "168331", "168868", "168910", "189862", "189866", "189905",
)  # fmt: skip
"""Every second of YAHPO's instances of LCBench, sixteen in all."""
_BEST_OF = 20_000


class Surrogate:
    """Answers what trainings on one task reach."""

    def __init__(self, folder: Path) -> None:
        """`folder` is `lcbench` of https://github.com/slds-lmu/yahpo_data."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session: Any = onnxruntime.InferenceSession(folder / "model.onnx", options)
        self._tasks: dict[str, int] = json.loads((folder / "encoding.json").read_text())["OpenML_task_id"]

    def accuracies(self, task: str, rows: Iterable[Sequence[float]]) -> list[float]:
        """Returns the validation accuracies, in percent. A row is a number of epochs and a point's values."""
        import numpy

        continuous = numpy.array(list(rows), dtype=numpy.float32)
        tasks = numpy.full((len(continuous), 1), self._tasks[task], dtype=numpy.int32)
        (outputs,) = self._session.run(None, {"x_cat": tasks, "x_cont": continuous})
        return [float(row[1]) for row in outputs]

    def span(self, task: str) -> tuple[float, float]:
        """Returns what a median point reaches, and what the best one does that random and then nearby points find."""
        rng = random.Random(task)
        points = [[rng.random() for _ in RANGES] for _ in range(_BEST_OF)]
        found = self._ranked(task, points)
        middle, best = median(value for value, _ in found), found[:100]
        step = 0.15
        for _ in range(30):
            near = [_near(rng.choice(best)[1], step, rng) for _ in range(1000)]
            best, step = sorted([*best, *self._ranked(task, near)], reverse=True)[:100], 0.9 * step
        return middle, best[0][0]

    def _ranked(self, task: str, units: Sequence[list[float]]) -> list[tuple[float, list[float]]]:
        rows = [(NUM_EPOCHS, *values_of(unit).values()) for unit in units]
        return sorted(zip(self.accuracies(task, rows), units, strict=True), reverse=True)


class Training:
    """The curve of one point on one task, of which no more is computed than is asked for."""

    def __init__(self, surrogate: Surrogate, task: str, point: Point) -> None:
        self._surrogate, self._task = surrogate, task
        self._values = [
            round(point[name]) if name in ("batch_size", "max_units", "num_layers") else point[name] for name in RANGES
        ]
        self._known: list[float] = []

    def at(self, epoch: int) -> float:
        """Returns the accuracy after this epoch, the first of which is 1."""
        if epoch > (num_known := len(self._known)):
            until = next(chunk for chunk in _CHUNKS if chunk >= epoch)
            rows = [(at, *self._values) for at in range(num_known + 1, until + 1)]
            self._known += self._surrogate.accuracies(self._task, rows)
        return self._known[epoch - 1]


def values_of(unit: Sequence[float]) -> Point:
    """Returns the values of a point whose coordinates are numbers from 0 to 1."""
    point = {}
    for (name, (kind, low, high)), part in zip(RANGES.items(), unit, strict=True):
        if kind == "log":
            point[name] = math.exp(math.log(low) + part * math.log(high / low))
        elif kind == "int":
            point[name] = min(low + math.floor(part * (high - low + 1)), high)
        else:
            point[name] = low + part * (high - low)
    return point


def _near(unit: Sequence[float], step: float, rng: random.Random) -> list[float]:
    return [min(max(part + (rng.random() < 0.5) * rng.gauss(0, step), 0), 1) for part in unit]
