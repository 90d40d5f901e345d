"""Datasets and loaders of Google's Grain, whose iterators keep a state each."""

from __future__ import annotations

from typing import Any


def is_of_grain(loader: Any) -> bool:
    return any(kind.__module__.partition(".")[0] == "grain" for kind in type(loader).__mro__)


class GrainLoader:
    """Reads a dataset or loader of Grain, and has the state of its iterator.

    It sets the state for each epoch, since an `ElasticIterator` has only one iterator, which stays at its end.
    """

    def __init__(self, data: Any) -> None:
        self._data = data
        self._iterator: Any = iter(data)
        self._start = self._first = self._iterator.get_state()
        # Only its state is the same on every rank, and fits any number of them.
        self.fits_any_ranks = any(kind.__name__ == "ElasticIterator" for kind in type(data).__mro__)

    def __iter__(self) -> Any:
        self._iterator = iter(self._data)
        try:
            self._iterator.set_state(self._start)
        except Exception as error:
            error.add_note("Grain resumes with the dataset, transformations and number of workers of the checkpoint.")
            raise
        self._start = self._first
        return self._iterator

    def state_dict(self) -> dict[str, Any]:
        return {"iterator": self._iterator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._start = state["iterator"]
