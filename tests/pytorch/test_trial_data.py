"""Loaders of a trial: what the Trainer makes of them, and how it goes on with them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from pytorch.trials import NUM_SAMPLES, LineTrial, dataset
from torch.utils.data import BatchSampler, RandomSampler, Sampler, Subset, TensorDataset
from torch.utils.data import DataLoader as TorchDataLoader

from core_sdk.errors import DataError, NotExactError, StateMismatchError
from core_sdk.loop import ShardedDataset, resumable
from core_sdk.pytorch import Batch, DataLoader, Epoch, FitResult, PyTorchTrialContext, Trainer, init


class Countdown:
    """A foreign loader without a position or a length."""

    def __iter__(self) -> Iterator[list[torch.Tensor]]:
        yield from ([torch.full((2, 1), float(number)), torch.ones(2, 1)] for number in (3, 2, 1))


def fit(
    make_loader: Callable[[], Any], *, job: str = "job", checks: bool = True, **arguments: Any
) -> tuple[FitResult, LineTrial]:
    class Loading(LineTrial):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            if not checks:
                context.experimental.disable_dataset_reproducibility_checks()

        def build_training_data_loader(self) -> Any:
            return make_loader()

    with init(job_id=job) as context:
        context.core_context.info.trial.trial_seed = 17
        trial = Loading(context)
        return Trainer(trial, context).fit(**arguments), trial


def in_sequence(shard: int) -> Iterator[Any]:
    """Yields a part of the samples, whose number is not known before it has been read."""
    yield from map(dataset().__getitem__, range(shard))


@pytest.mark.parametrize(
    "make_loader",
    [
        lambda: DataLoader(dataset(), 4, shuffle=True, drop_last=True),
        lambda: DataLoader(dataset(), batch_sampler=BatchSampler(RandomSampler(dataset()), 3, drop_last=False)),
        lambda: resumable(DataLoader(dataset(), 8, shuffle=True), seed=5, last_batch="carry"),
        lambda: DataLoader(ShardedDataset([5, 1, 20, 6], in_sequence, shuffle=True, shuffle_block_size=8), 3),
    ],
    ids=["drop_last", "batch_sampler", "carry", "shards"],
)
def test_a_trial_goes_on_with_the_next_batch_of_any_loader_of_ours(make_loader: Callable[[], Any]) -> None:
    """A training on any of our loaders resumes with the next batch."""
    _, whole = fit(make_loader, job="whole", max_length=Batch(8))

    first_result, first = fit(make_loader, max_length=Batch(3))
    _, second = fit(make_loader, max_length=Batch(8), latest_checkpoint=first_result.latest_checkpoint)

    assert [batch[:3] for batch in first.trained + second.trained] == [batch[:3] for batch in whole.trained]


def test_a_loader_of_another_class_is_read_as_it_is() -> None:
    """A foreign loader that the trial allows is read to its end, and a resume skips trained batches."""
    first_result, first = fit(Countdown, checks=False, max_length=Batch(2))
    result, second = fit(Countdown, checks=False, max_length=Epoch(2), latest_checkpoint=first_result.latest_checkpoint)

    assert [(epoch, index, x[0]) for epoch, index, x, _, _ in first.trained + second.trained] == [
        (0, 0, 3.0), (0, 1, 2.0), (0, 2, 1.0), (1, 3, 3.0), (1, 4, 2.0), (1, 5, 1.0),
    ]  # fmt: skip
    assert result.steps_completed == 6


def test_a_sampler_that_cannot_be_exact_is_refused_unless_the_trial_allows_it() -> None:
    """A sampler that cannot resume exactly is refused unless the trial disables the check."""

    class Whimsical(Sampler[int]):
        def __init__(self) -> None:
            self._random = random.Random()

        def __len__(self) -> int:
            return NUM_SAMPLES

        def __iter__(self) -> Iterator[int]:
            return iter(self._random.sample(range(NUM_SAMPLES), NUM_SAMPLES))

    words = r"Whimsical.*give it set_epoch.*or call context\.experimental\.disable_dataset_reproducibility_checks\(\)"
    with pytest.raises(NotExactError, match=words):
        fit(lambda: DataLoader(dataset(), 4, sampler=Whimsical()), max_length=Batch(2))
    _, trial = fit(lambda: DataLoader(dataset(), 4, sampler=Whimsical()), checks=False, max_length=Epoch(1))

    assert sorted(x for batch in trial.trained for x in batch[2]) == list(range(NUM_SAMPLES))


@pytest.mark.parametrize(
    ("make_loader", "words"),
    [
        (lambda: DataLoader(dataset(), 40, drop_last=True), "no whole batch of 40: .* drop_last=False"),
        (lambda: DataLoader(Subset(dataset(), []), 4), "there are no data"),
        (lambda: DataLoader(dataset(), sampler=(number for number in range(9))), "gives nothing in"),
    ],
)
def test_a_loader_that_gives_no_batches_is_named(make_loader: Callable[[], Any], words: str) -> None:
    """A loader without batches is refused with the reason and the method that built it."""
    with pytest.raises(ValueError, match=words) as raised:
        fit(make_loader, max_length=Batch(2))

    assert "build_training_data_loader()" in "".join(raised.value.__notes__)


@pytest.mark.parametrize(("is_moved", "kind"), [(True, torch.Tensor), (False, np.ndarray)])
def test_batches_are_moved_to_the_device_unless_the_trial_does_it(is_moved: bool, kind: type[Any]) -> None:
    """Batches are moved to the device unless the trial disables it."""
    seen = []

    class Moving(LineTrial):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            if not is_moved:
                context.experimental.disable_auto_to_device()

        def build_training_data_loader(self) -> DataLoader:
            return DataLoader(
                dataset(), 4, collate_fn=lambda samples: [np.stack(x) for x in zip(*samples, strict=True)]
            )

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            seen.append(type(batch[0]))
            return super().train_batch(self.context.to_device(batch), epoch_idx, batch_idx)

    with init() as context:
        Trainer(Moving(context), context).fit(max_length=Batch(1))

    assert seen == [kind]


def test_a_bare_loader_of_torch_is_read_in_an_order_that_resumes() -> None:
    """If the trial allows it, a plain torch loader is read in an order that resumes."""
    make_loader = lambda: TorchDataLoader(dataset(), 8, shuffle=True)  # noqa: E731

    first_result, first = fit(make_loader, checks=False, max_length=Batch(2))
    _, second = fit(make_loader, checks=False, max_length=Epoch(1), latest_checkpoint=first_result.latest_checkpoint)

    assert sorted(x for batch in first.trained + second.trained for x in batch[2]) == list(range(20))


def test_data_that_have_another_length_than_before_are_refused() -> None:
    """Data of another length than at the stop are refused."""
    first_result, _ = fit(lambda: DataLoader(dataset(), 8), max_length=Batch(2))

    with pytest.raises(DataError, match="the length of the data"):
        fit(
            lambda: DataLoader(Subset(dataset(), range(19)), 8),
            max_length=Batch(4),
            latest_checkpoint=first_result.latest_checkpoint,
        )


def test_a_checkpoint_of_another_model_is_refused_by_names_and_shapes() -> None:
    """A checkpoint of another model is refused with names, shapes and advice."""

    class Larger(LineTrial):
        def make_model(self) -> torch.nn.Module:
            return torch.nn.Linear(1, 2)

    first_result, _ = fit(lambda: DataLoader(dataset(), 8), max_length=Batch(1))

    words = r"does not fit .*model.* 0\.weight.*Build it with the hyperparameters"
    with pytest.raises(StateMismatchError, match=words), init() as context:
        Trainer(Larger(context), context).fit(max_length=Batch(2), latest_checkpoint=first_result.latest_checkpoint)


def test_a_resume_with_other_data_says_so_or_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """A checkpoint of a Trainer has the fingerprint of its data. A loader made by `resumable()` may be strict."""
    other = TensorDataset(*(3 * values for values in dataset().tensors))
    result, _ = fit(lambda: DataLoader(dataset(), 4), max_length=Batch(2))
    latest = result.latest_checkpoint

    with pytest.raises(DataError, match="the checksum of some samples was"):
        fit(lambda: resumable(DataLoader(other, 4), data="strict"), max_length=Batch(3), latest_checkpoint=latest)
    fit(lambda: DataLoader(other, 4), max_length=Batch(3), latest_checkpoint=latest)

    assert [each.message for each in caplog.records if "not those of the checkpoint" in each.message] != []
