"""A progress bar of the training, on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from core_sdk.loop._schedule import Batch, Counters, Epoch, Record, Seconds, TrainUnit

_NAMES = {Batch: "batches", Epoch: "epochs", Record: "samples", Seconds: "seconds"}


class ProgressBar(Progress):
    """A progress bar that reads the counters only when it is drawn, so that it costs nothing per batch."""

    def __init__(self, length: TrainUnit, batches_per_epoch: int | None, counters: Callable[[], Counters]) -> None:
        if isinstance(length, Epoch) and batches_per_epoch is not None:
            length = Batch(length.value * batches_per_epoch)  # moves more often
        self._length = length
        self._counters = counters
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        console = Console(stderr=True)
        super().__init__(*columns, console=console, transient=console.is_terminal, refresh_per_second=4)
        what = _NAMES.get(type(length), type(length).__name__)
        self._task = self.add_task(what, total=length.value, completed=int(length.count(counters())))

    def get_renderables(self) -> Iterable[RenderableType]:
        if hasattr(self, "_task"):
            self.update(self._task, completed=self._length.count(self._counters()))
        yield from super().get_renderables()
