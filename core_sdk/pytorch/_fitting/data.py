"""The batches of a training and of its validations, from the loaders that the trial has built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from core_sdk._distributed import DistributedContext
from core_sdk.errors import NotExactError
from core_sdk.loop import ResumableLoader, resumable
from core_sdk.loop._plan import Draw
from core_sdk.pytorch._data import DataLoader
from core_sdk.pytorch._run import TrialRun
from core_sdk.pytorch._trial import PyTorchTrial

TRAINING_LOADER = "build_training_data_loader"
VALIDATION_LOADER = "build_validation_data_loader"

# The values that must be equal on all ranks that divide the same batches, by their names in a loader's state.
_IN_COMMON = {
    "num_units": "length",
    "shards": "checksum of the shards' names",
    "batch_size": "global batch size",
    "order": "order",
    "seed": "seed",
}


def built_loader(trial: PyTorchTrial, method: str, run: TrialRun[Any]) -> Any:
    """Returns the loader that the trial's `method` builds.

    Raises `TypeError` if it is not a loader, and `RuntimeError` for a loader of another class unless the trial allows
    it.
    """
    loader = getattr(trial, method)()
    if isinstance(loader, DataLoader | ResumableLoader):
        return loader
    if not hasattr(loader, "__iter__"):
        raise TypeError(f"{method}() returned a {type(loader).__name__}; it must return a pytorch.DataLoader")
    if run.checks_datasets:
        raise RuntimeError(
            f"{method}() returned a {type(loader).__module__}.{type(loader).__name__}, whose order could not be kept "
            "over ranks and resumes. Return core_sdk.pytorch.DataLoader(…) with the same arguments, or "
            f"{run.waiver}"
        )
    return loader


class Data:
    """The batches of one loader for this rank.

    The batches of a `pytorch.DataLoader` are divided among the ranks. With any other loader, each rank reads its own
    one, which resumes as well as it can.
    """

    def __init__(self, trial: PyTorchTrial, loader: Any, method: str, run: TrialRun[Any]) -> None:
        """`method` has built the `loader`, and is named in errors."""
        self._trial = trial
        self._method = method
        is_ours = isinstance(loader, DataLoader | ResumableLoader)
        self._num_shares = run.runtime.data_ranks.size
        self._num_readers = 1 if is_ours else self._num_shares
        # A batch sampler may put any number of samples into each batch.
        self._draws_samples = isinstance(loader, DataLoader) and loader.batch_size is not None
        self._loader = loader if isinstance(loader, ResumableLoader) else self._resumable(loader, is_ours, run)

    def _resumable(self, loader: Any, is_ours: bool, run: TrialRun[Any]) -> ResumableLoader:
        ranks = run.runtime.data_ranks if is_ours else DistributedContext()
        is_exact = is_ours and run.checks_datasets
        try:
            return resumable(loader, seed=run.seed, distributed=ranks, exact=is_exact)
        except NotExactError as error:
            raise NotExactError(error.problem, error.remedy, run.waiver) from None
        except (TypeError, ValueError) as error:
            error.add_note(f"The loader is that of {self._method}().")
            raise

    def check_ranks(self, distributed: DistributedContext) -> None:
        """Raises `ValueError` if the loaders of the ranks do not fit together. Collective."""
        ranks = [each for each in distributed.allgather(self._in_common()) if each]
        for name in ranks[0]:
            found = [each[name] for each in ranks]
            if any(each != found[0] for each in found):
                raise ValueError(
                    f"the loaders of {self._method}() differ between the ranks: the {name} is "
                    f"{', '.join(map(str, found))}. Return a core_sdk.pytorch.DataLoader with all data and the same "
                    "options on every rank: the Trainer divides each batch among the ranks"
                )

    @property
    def batches_per_epoch(self) -> int | None:
        return self._loader.batches_per_epoch

    @property
    def is_divided(self) -> bool:
        """Whether all ranks have the same number of batches."""
        return self._num_readers == 1

    def num_samples(self, draw: Draw, batch: Any) -> int:
        """Returns the number of this rank's samples in a batch; 0 if the batch repeats samples of another rank."""
        if draw.is_filler:
            return 0
        return len(draw.indices) if self._draws_samples else self._trial.get_batch_length(batch)

    def stream(self) -> Iterator[tuple[Draw, Any]]:
        """Yields the batches of a training, without an end."""
        if self._num_readers == 1:
            return self._loader.stream()
        return ((self._over_readers(draw), batch) for draw, batch in self._loader.stream())

    def single_pass(self) -> Iterator[tuple[Any, int]]:
        """Yields the batches of a validation, with their numbers of samples."""
        return ((batch, self.num_samples(draw, batch)) for draw, batch in self._loader.single_pass())

    def explain(self, error: BaseException) -> None:
        """Adds a note to an error of torch about a lost worker of this loader."""
        self._loader.explain(error)

    def state_dict(self) -> dict[str, Any]:
        return self._loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._loader.load_state_dict(state)

    def _over_readers(self, draw: Draw) -> Draw:
        # If the length of an epoch is unknown, ranks may not agree on its end.
        is_epoch_end = draw.is_epoch_end and self.batches_per_epoch is not None
        return draw._replace(num_global=draw.num_global * self._num_readers, is_epoch_end=is_epoch_end)

    def _in_common(self) -> dict[str, Any]:
        """Returns the values that must be equal on all ranks that read data.

        Raises `ValueError` if the loader divides batches among another number of ranks.
        """
        if self._num_readers > 1:
            return {"number of batches": self.batches_per_epoch}
        state = self._loader.state_dict()
        if state["num_ranks"] != self._num_shares:
            raise ValueError(
                f"the loader of {self._method}() divides batches among {state['num_ranks']} ranks, and there are "
                f"{self._num_shares}: pass distributed=context.distributed to resumable()"
            )
        return {name: state[key] for key, name in _IN_COMMON.items() if key in state}
