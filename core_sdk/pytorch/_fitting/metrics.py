"""The metrics of batches, which stay on their device until they are reported, and their means."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch

Number = float | int | None
Reduce = Callable[[Sequence[float], Sequence[int]], float]
"""Takes the values of batches, and how many samples each batch has."""

_ROWS_PER_BLOCK = 256


class BatchMetrics:
    """What a trial's method has returned for each batch of this rank."""

    def __init__(self, method: str) -> None:
        """`method` is named in errors: `train_batch`."""
        self._method = method
        self._names: tuple[str, ...] | None = None
        self._rows: list[tuple[list[Any], int, int]] = []
        """Values as they were returned, the index of the batch, and its number of samples."""
        self._blocks: list[list[Number]] = []
        """The values that were read already, for each name."""
        self._num_samples: list[int] = []

    def add(self, returned: Any, batch_idx: int, num_samples: int) -> None:
        """`num_samples` is the number of this rank's samples in the batch."""
        if type(returned) is not dict:
            returned = self._as_dict(returned)
        if tuple(returned) != self._names:
            returned = self._ordered(returned, batch_idx)
        values = []
        for value in returned.values():
            if isinstance(value, torch.Tensor):
                kept = value.detach()  # without the graph
                # Somebody may still change it in place, as an optimizer changes a parameter.
                value = kept.clone() if value.is_leaf or value._version else kept
            values.append(value)
        self._rows.append((values, batch_idx, num_samples))
        if len(self._rows) == _ROWS_PER_BLOCK:
            self._read()

    def take(self) -> Columns:
        """The values since the last time, read from the device."""
        self._read()
        taken = Columns(dict(zip(self._names or (), self._blocks, strict=True)), self._num_samples)
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
        """In the order of the first batch. Raises `ValueError` if a name is missing or new."""
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
        indices = [index for _, index, _ in self._rows]
        for column, (name, block) in enumerate(zip(self._names or (), self._blocks, strict=True)):
            block.extend(self._numbers(name, [values[column] for values, _, _ in self._rows], indices))
        self._num_samples += [num_samples for _, _, num_samples in self._rows]
        self._rows.clear()

    def _numbers(self, name: str, values: list[Any], batch_indices: list[int]) -> list[Number]:
        if _are_alike_on_a_device(values):
            values = torch.stack(values).tolist()  # in one transfer
        return [self._number(name, value, index) for value, index in zip(values, batch_indices, strict=True)]

    def _number(self, name: str, value: Any, batch_idx: int) -> Number:
        try:
            if value is None:
                return None
            return _plain(value.item() if hasattr(value, "item") else value)
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(
                f"{self._method}() returned {_kind(value)} as metric {name!r} of batch {batch_idx}; a metric is a "
                "number, or a tensor with one element. Reduce it to one, or give it to a reducer of "
                "context.wrap_reducer()"
            ) from None


@dataclass(frozen=True)
class Columns:
    """The metrics of one rank's batches, in the order of the batches."""

    values: dict[str, list[Number]]
    num_samples: list[int]
    """Of each batch; 0 for one that repeats samples of another rank, and does not count."""

    def counted(self, name: str) -> list[tuple[float, int]]:
        """Values with their numbers of samples."""
        pairs = zip(self.values.get(name, ()), self.num_samples, strict=False)
        return [(value, count) for value, count in pairs if value is not None and count]


def mean(values: Sequence[float], num_samples: Sequence[int]) -> float:
    """The mean over all samples; the values are means over the samples of a batch."""
    if len(set(num_samples)) == 1:
        return sum(values) / len(values)
    return sum(value * count for value, count in zip(values, num_samples, strict=True)) / sum(num_samples)


def reduced(ranks: Sequence[Columns], reduces: Mapping[str, Reduce]) -> dict[str, Number]:
    """The metrics over all batches of all ranks; None where no batch has a value."""
    result: dict[str, Number] = {}
    for name, reduce in reduces.items():
        counted = [pair for columns in ranks for pair in columns.counted(name)]
        result[name] = reduce([value for value, _ in counted], [count for _, count in counted]) if counted else None
    return result


def without_none(metrics: Mapping[str, Number]) -> dict[str, float | int]:
    return {name: value for name, value in metrics.items() if value is not None}


def means_of_batches(ranks: Sequence[Columns]) -> list[dict[str, Any]]:
    """For each batch, the means over all ranks, without metrics of which it has none."""
    if len(ranks) == 1:
        values = ranks[0].values
        rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
        return [without_none(row) for row in rows] if any(None in column for column in values.values()) else rows
    num_samples = list(zip_longest(*(columns.num_samples for columns in ranks), fillvalue=0))
    batches: list[dict[str, Any]] = [{} for _ in num_samples]
    for name in metric_names(ranks):
        of_ranks = zip_longest(*(columns.values.get(name, ()) for columns in ranks))
        for batch, found, counts in zip(batches, of_ranks, num_samples, strict=True):
            pairs = zip(found, counts, strict=True)
            counted = [(value, count) for value, count in pairs if value is not None and count]
            if counted:
                batch[name] = mean([value for value, _ in counted], [count for _, count in counted])
    return batches


def metric_names(ranks: Sequence[Columns]) -> list[str]:
    """Raises `ValueError` if the ranks have different ones. A rank without batches has none."""
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
    """Whether they are tensors of one kind that are not on the CPU, where reading one by one costs least."""
    first = values[0] if values else None
    if not isinstance(first, torch.Tensor) or first.device.type == "cpu" or first.ndim:
        return False
    kind = (first.shape, first.dtype, first.device)
    return all(isinstance(each, torch.Tensor) and (each.shape, each.dtype, each.device) == kind for each in values)


def _plain(value: Any) -> float | int:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float):
        return value
    raise TypeError


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"
