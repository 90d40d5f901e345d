"""Calls a callback between the batches and between the epochs of Lightning's training, where it has no hook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from core_sdk.integrations._lightning_state import combined_loader, resumable_loaders

if TYPE_CHECKING:
    from lightning.pytorch import Trainer


class BetweenBatches(Protocol):
    """The methods that are called. The first two may raise `StopIteration`, which ends the training there."""

    @property
    def is_stopping(self) -> bool: ...

    def before_epoch(self, trainer: Trainer) -> bool:
        """Called before an epoch, or the rest of one. Returns whether it has restored the training just now."""

    def before_batch(self, trainer: Trainer) -> None: ...

    def after_batch(self, trainer: Trainer) -> None:
        """Called before the validation that may follow the batch."""


def call_between_batches(trainer: Trainer, callback: BetweenBatches) -> None:
    """Wraps the methods by which Lightning's loops advance.

    When these are called, all that belongs to the batch or the epoch before is done: saves, validations, schedules and
    logs. `trainer.should_stop` alone would end the epoch with the batches that it has had, as if these were all.
    """
    epochs, batches = trainer.fit_loop, trainer.fit_loop.epoch_loop
    begin_epoch, train_epoch = epochs.on_advance_start, epochs.advance
    train_batch, end_batch = batches.advance, batches.on_advance_end
    is_restored = False

    def on_epoch_start() -> None:
        nonlocal is_restored
        is_restored, is_within_epoch = callback.before_epoch(trainer), epochs.restarted_mid_epoch
        begin_epoch()
        _take_up_loaders(trainer, is_restored, is_within_epoch)
        if is_restored:
            # What was not completed when Lightning saved, it leaves out or does again; but all was.
            epochs._restarting = False
            batches.restarting = is_within_epoch

    def advance_by_epoch() -> None:
        train_epoch()
        if callback.is_stopping:
            raise StopIteration  # otherwise the epoch would be ended

    def advance_by_batch(*args: Any) -> None:
        nonlocal is_restored
        callback.before_batch(trainer)
        if is_restored:
            batches.restarting = is_restored = False
        train_batch(*args)

    def on_batch_end(*args: Any) -> None:
        callback.after_batch(trainer)
        end_batch(*args)

    vars(epochs).update(on_advance_start=on_epoch_start, advance=advance_by_epoch)
    vars(batches).update(advance=advance_by_batch, on_advance_end=on_batch_end)


def _take_up_loaders(trainer: Trainer, is_restored: bool, is_within_epoch: bool) -> None:
    """Lets resumable loaders begin the epoch that Lightning begins, and give no batch before it is trained on."""
    epochs = trainer.fit_loop
    fetcher, loaders = epochs._data_fetcher, resumable_loaders(trainer)
    is_alone = len(combined_loader(trainer).flattened) == 1
    if loaders and fetcher.length is None and getattr(fetcher, "prefetch_batches", False):
        if not is_alone:
            raise ValueError(
                "a resumable loader has no length, and of several loaders Lightning reads ahead, so that a resume "
                "would miss a batch: give it a length, such as ShardedDataset(lengths=…), or pass limit_train_batches="
            )
        _read_nothing_ahead(fetcher)
    beginning = [loader for loader in loaders if not is_within_epoch or loader.is_epoch_over]
    for loader in beginning:
        if loader.epoch != trainer.current_epoch or not is_restored:
            loader.begin_epoch(trainer.current_epoch)
    if loaders and is_alone and fetcher.length is not None:
        _take_length_of_epoch(trainer, len(loaders[0]))
    if is_restored or beginning:
        iter(fetcher)  # Lightning began to iterate before the random numbers and the loaders were what they are now


def _take_length_of_epoch(trainer: Trainer, num_batches: int) -> None:
    """Tells Lightning, which takes all epochs to be as long as the first one, the length of this one."""
    if isinstance(trainer.limit_train_batches, float):
        epochs = trainer.fit_loop
        epochs.max_batches = int(num_batches * trainer.limit_train_batches)
        combined_loader(trainer).limits = [epochs.max_batches]
        if isinstance(trainer.val_check_interval, float) and trainer.val_check_batch is not None:
            trainer.val_check_batch = max(1, int(epochs.max_batches * trainer.val_check_interval))


def _read_nothing_ahead(fetcher: Any) -> None:
    """Makes Lightning's fetcher ask a resumable loader for an epoch's end, where it would read a batch ahead."""
    kind = type(fetcher)

    class ExactFetcher(kind):  # type: ignore[misc, valid-type]
        def __next__(self: Any) -> Any:
            batch = self.batches.pop(0) if self.batches else super().__next__()
            self.done = self.done or self.combined_loader.flattened[0].is_epoch_over
            return batch

    fetcher.prefetch_batches = 0
    fetcher.__class__ = ExactFetcher
