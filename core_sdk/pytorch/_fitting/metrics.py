"""The metrics of batches and their means. Metrics stay on their device until they are reported."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch

from core_sdk._ground.records import from_json, number_of, to_json
from core_sdk.loop._moving import is_array

logger = logging.getLogger("core_sdk.pytorch")

Reduce = Callable[[Sequence[float], Sequence[int]], float]
"""A function of the values of batches, and the numbers of samples of these batches."""

_ROWS_PER_BLOCK = 256


class BatchMetrics:
    """The metrics that a trial's method has returned for each batch of this rank."""

    def __init__(self, method: str) -> None:
        """`method` is named in errors: `train_batch`."""
        self._method = method
        self._names: tuple[str, ...] | None = None
        self._rows: list[list[Any]] = []
        """The values as they were returned, for each batch that was not read yet."""
        self._blocks: list[list[Any]] = []
        """The values that were read already, for each name. A value that is not a number is JSON or a `NotJson`."""
        self._num_samples: list[int] = []
        self._others: set[str] = set()

    def add(self, returned: Any, batch_idx: int, num_samples: int) -> None:
        """Adds the metrics of a batch. `num_samples` is the number of this rank's samples in the batch."""
        if type(returned) is not dict:
            returned = self._as_dict(returned)
        if tuple(returned) != self._names:
            returned = self._ordered(returned, batch_idx)
        values = []
        for value in returned.values():
            if isinstance(value, torch.Tensor):
                kept = value.detach()  # without the graph
                # Copied because it may be changed in place later, as an optimizer changes a parameter.
                value = kept.clone() if value.is_leaf or value._version else kept
            values.append(value)
        self._rows.append(values)
        self._num_samples.append(num_samples)
        if len(self._rows) == _ROWS_PER_BLOCK:
            self._read()

    def take(self) -> Columns:
        """Returns the values since the last call, read from the device."""
        self._read()
        taken = Columns(
            dict(zip(self._names or (), self._blocks, strict=True)), self._num_samples, frozenset(self._others)
        )
        self._blocks = [[] for _ in self._names or ()]
        self._num_samples = []
        return taken

    def _as_dict(self, returned: Any) -> dict[str, Any]:
        if isinstance(returned, torch.Tensor):
            return {"loss": returned}
        if isinstance(returned, Mapping):
            return dict(returned)
        raise TypeError(
            f"{self._method}() returned {_kind(returned)}; it must return a dict of metrics"
            + (", or the loss as a tensor" if self._method == "train_batch" else "")
        )

    def _ordered(self, metrics: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Returns the metrics in the order of the first batch. Raises `ValueError` if a name is missing or new."""
        if self._names is None:
            self._names = tuple(metrics)
            self._blocks = [[] for _ in metrics]
            return metrics
        if metrics.keys() != set(self._names):
            missing = [name for name in self._names if name not in metrics]
            new = [name for name in metrics if name not in self._names]
            what = " and ".join(
                f"{verb} {', '.join(map(repr, names))}" for verb, names in (("lack", missing), ("add", new)) if names
            )
            raise ValueError(
                f"the metrics that {self._method}() returned for batch {batch_idx} {what}. Return the same keys for "
                "each batch; None is the value where a batch has none"
            )
        return {name: metrics[name] for name in self._names}

    def _read(self) -> None:
        for column, (name, block) in enumerate(zip(self._names or (), self._blocks, strict=True)):
            values = [row[column] for row in self._rows]
            if _are_alike_on_a_device(values):
                values = torch.stack(values).tolist()  # a single transfer
            block.extend(self._read_value(name, value) for value in values)
        self._rows.clear()

    def _read_value(self, name: str, value: Any) -> Any:
        number = number_of(value)
        if number is None and value is not None:
            self._others.add(name)
            return as_json(value)
        return number


@dataclass(frozen=True)
class NotJson:
    """Takes the place of a value that JSON cannot hold."""

    kind: str


@dataclass(frozen=True)
class Columns:
    """The metrics of one rank's batches, in the order of the batches."""

    values: dict[str, list[Any]]
    num_samples: list[int]
    """The number of samples of each batch; 0 for a batch that repeats samples of another rank and does not count."""
    others: frozenset[str] = frozenset()
    """The names of metrics with a value that is not a number."""

    def counted(self, name: str) -> list[tuple[Any, int]]:
        """Returns the values of a metric with their numbers of samples."""
        pairs = zip(self.values.get(name, ()), self.num_samples, strict=False)
        return [(value, count) for value, count in pairs if value is not None and count]


def mean(values: Sequence[float], num_samples: Sequence[int]) -> float:
    """Returns the mean over all samples. The values are means over the samples of a batch."""
    if len(set(num_samples)) == 1:
        return sum(values) / len(values)
    return sum(value * count for value, count in zip(values, num_samples, strict=True)) / sum(num_samples)


class LeftOut:
    """Logs, once for each metric, that it is not reported, and why."""

    def __init__(self, is_chief: bool = True) -> None:
        self._is_chief = is_chief
        self._names: set[str] = set()

    def say(self, name: str, problem: str) -> None:
        if self._is_chief and name not in self._names:
            self._names.add(name)
            logger.warning(
                "the metric %r is not reported: %s. A metric is a number, or what JSON can keep; "
                "context.wrap_reducer() makes one of anything", name, problem,
            )  # fmt: skip


def reduced(ranks: Sequence[Columns], reduces: Mapping[str, Reduce], left_out: LeftOut) -> dict[str, Any]:
    """Returns the metrics over all batches of all ranks; None for a metric without a value.

    Lists, dicts and tensors are reduced element by element, and left out if that is impossible.
    """
    result: dict[str, Any] = {}
    for name, reduce in reduces.items():
        counted = [pair for columns in ranks for pair in columns.counted(name)]
        values, counts = [value for value, _ in counted], [count for _, count in counted]
        if counted and any(name in columns.others for columns in ranks):
            try:
                result[name] = _reduced_elements(values, counts, reduce)
            except TypeError as error:
                left_out.say(name, str(error))
        else:
            result[name] = reduce(values, counts) if counted else None
    return result


def _reduced_elements(values: list[Any], counts: list[int], reduce: Reduce) -> Any:
    """Reduces values element by element. Raises `TypeError` if that is impossible, with the reason."""
    first = values[0]
    if isinstance(first, NotJson):
        raise TypeError(f"it is {first.kind}")
    if len(values) == 1:
        return first
    if all(isinstance(value, int | float) for value in values):
        return reduce(values, counts)
    if all(isinstance(value, dict) and value.keys() == first.keys() for value in values):
        return {key: _reduced_elements([value[key] for value in values], counts, reduce) for key in first}
    if all(isinstance(value, list) and len(value) == len(first) for value in values):
        return [_reduced_elements(list(elements), counts, reduce) for elements in zip(*values, strict=True)]
    raise TypeError("its values for several batches have different shapes, or are no numbers")


def without_none(metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metrics.items() if value is not None}


def means_of_batches(ranks: Sequence[Columns]) -> list[dict[str, Any]]:
    """Returns, for each batch, the means over all ranks of those metrics that are numbers."""
    others = frozenset().union(*(columns.others for columns in ranks))
    if len(ranks) == 1:
        values = {name: column for name, column in ranks[0].values.items() if name not in others}
        rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
        return [without_none(row) for row in rows] if any(None in column for column in values.values()) else rows
    num_samples = list(zip_longest(*(columns.num_samples for columns in ranks), fillvalue=0))
    batches: list[dict[str, Any]] = [{} for _ in num_samples]
    for name in [name for name in metric_names(ranks) if name not in others]:
        of_ranks = zip_longest(*(columns.values.get(name, ()) for columns in ranks))
        for batch, found, counts in zip(batches, of_ranks, num_samples, strict=True):
            pairs = zip(found, counts, strict=True)
            counted = [(value, count) for value, count in pairs if value is not None and count]
            if counted:
                batch[name] = mean([value for value, _ in counted], [count for _, count in counted])
    return batches


def metric_names(ranks: Sequence[Columns]) -> list[str]:
    """Returns the names of the metrics. Raises `ValueError` if ranks with batches have different ones."""
    names: list[str] = []
    for rank, columns in enumerate(ranks):
        if not names:
            names = list(columns.values)
        elif columns.values and columns.values.keys() != set(names):
            different = sorted(columns.values.keys() ^ set(names))
            raise ValueError(
                f"rank {rank} has other metrics than the ranks before it: {', '.join(different)}. Return the same "
                "keys on every rank"
            )
    return names


def _are_alike_on_a_device(values: list[Any]) -> bool:
    """Returns whether they are scalar tensors of one type on one GPU. On the CPU, single reads are faster."""
    first = values[0] if values else None
    if not isinstance(first, torch.Tensor) or first.device.type == "cpu" or first.ndim:
        return False
    kind = (first.shape, first.dtype, first.device)
    return all(isinstance(each, torch.Tensor) and (each.shape, each.dtype, each.device) == kind for each in values)


def as_json(value: Any) -> Any:
    """Converts a value to JSON, with lists for tensors and arrays. Returns a `NotJson` if that is impossible."""
    try:
        return from_json(to_json(_lists(value), "it"))
    except (TypeError, ValueError):
        return NotJson(_kind(value))


def _lists(value: Any) -> Any:
    if isinstance(value, torch.Tensor) or is_array(value):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: _lists(item) for key, item in value.items()}
    return [_lists(item) for item in value] if isinstance(value, list | tuple) else value


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"
