"""A dataset is worked through once, whatever stops the work."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch.ranks import Ranks
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from core_sdk import client
from core_sdk.pytorch.experimental import TorchBatchProcessor, TorchBatchProcessorContext, torch_batch_process

DATASET = TensorDataset(torch.arange(23))


class Squares(TorchBatchProcessor):
    """A processor that stores the square of each sample and their number."""

    stops_after: int | None = None
    dies_after: int | None = None

    def __init__(self, context: TorchBatchProcessorContext) -> None:
        super().__init__(context)
        self.model = context.prepare_model_for_inference(torch.nn.Dropout(1.0))
        self.count = context.wrap_reducer(sum, name="samples")
        self.squares: dict[int, int] = {}

    def process_batch(self, batch: Any, batch_idx: int) -> None:
        (x,) = self.context.to_device(batch)
        assert torch.equal(self.model(x.float()), x.float())
        self.squares |= {int(each): int(each) ** 2 for each in x}
        self.count.update(len(x))
        if batch_idx == self.dies_after:
            raise KeyboardInterrupt
        if batch_idx == self.stops_after:
            os.kill(os.getpid(), signal.SIGTERM)

    def on_checkpoint_start(self) -> None:
        if self.squares:
            with self.context.upload_path() as path:
                (path / f"{min(self.squares)}.json").write_text(json.dumps(self.squares))
        self.squares = {}

    def on_finish(self) -> None:
        Path(f"finished-{self.context.get_distributed_rank()}").touch()


class Drawing(TorchBatchProcessor):
    """A processor that draws a random number for each batch."""

    drawn: list[float]

    def process_batch(self, batch: Any, batch_idx: int) -> None:
        self.drawn.append(torch.rand(1).item())


def outputs() -> list[int]:
    """Returns the samples whose squares are in any checkpoint."""
    found: list[int] = []
    for checkpoint in client.get_trial(1).list_checkpoints():
        for file in sorted(Path(checkpoint.download(f"copy-{checkpoint.uuid}")).rglob("rank_*/*.json")):
            squares = {int(x): square for x, square in json.loads(file.read_text()).items()}
            assert all(square == x**2 for x, square in squares.items())
            found += squares
    return sorted(found)


@pytest.fixture(autouse=True)
def in_own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_each_sample_is_processed_once(tmp_path: Path) -> None:
    """The last batch is smaller; output, metric and progress are the trial's."""
    torch_batch_process(Squares, DATASET, batch_size=4, checkpoint_interval=2)

    assert outputs() == list(range(23))
    trial = client.get_trial(1)
    assert [dict(each.metrics) for each in trial.iter_metrics("validation")] == [{"samples": 23}]
    assert [each.metadata["steps_completed"] for each in trial.list_checkpoints()] in ([2, 4, 6], [6, 4, 2])
    assert (tmp_path / "finished-0").exists()


@pytest.mark.parametrize(
    ("options", "num_samples"), [({"max_batches": 2}, 8), ({"dataloader_kwargs": {"drop_last": True}}, 20)]
)
def test_a_part_may_be_left_out(options: dict[str, Any], num_samples: int) -> None:
    """max_batches leaves out the rest of the dataset, and drop_last leaves out the smaller last batch."""
    torch_batch_process(Squares, DATASET, batch_size=4, **options)

    assert outputs() == list(range(num_samples))


def process(stops_after: str, dies_after: str, batch_size: str) -> None:
    Squares.stops_after, Squares.dies_after = int(stops_after), int(dies_after)
    torch_batch_process(Squares, DATASET, batch_size=int(batch_size), checkpoint_interval=2, job_id="work")


@pytest.mark.parametrize(
    ("first", "then", "end"),
    [
        (1, 3, "stop"),
        (2, 1, "death"),
        (2, 2, "stop"),
        (2, 2, "death"),
        (2, 1, "stop"),
        (1, 3, "death"),
    ],
)
def test_the_work_goes_on_after_any_end_on_any_number_of_ranks(ranks: Ranks, first: int, then: int, end: str) -> None:
    """After a stop or death, on any number of ranks, each sample has exactly one output."""
    ends = (0, -1) if end == "stop" else (-1, 2)
    for process_ in ranks.start(process, first, *ends, 3):
        process_.wait()
    stored = outputs()
    assert stored == list(range(len(stored)))
    assert 0 < len(stored) < 23

    ranks.run(process, then, -1, -1, 3)

    assert outputs() == list(range(23))


class Endless(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(3))


@pytest.mark.parametrize(
    ("dataset", "options", "error", "text"),
    [
        (Endless(), {}, TypeError, "Endless has no length"),
        (DATASET, {"checkpoint_interval": 0}, ValueError, "checkpoint_interval is 0"),
        (DATASET, {"max_batches": 0}, ValueError, "max_batches is 0"),
        (DATASET, {"dataloader_kwargs": {"shuffle": True}}, ValueError, "shuffle must be False"),
        (DATASET, {"dataloader_kwargs": {"sampler": [1]}}, ValueError, "has a sampler"),
        (DATASET, {"batch_size": 2, "dataloader_kwargs": {"batch_size": 2}}, ValueError, "given twice"),
    ],
)
def test_what_cannot_be_divided_is_refused(
    dataset: Dataset[Any], options: dict[str, Any], error: type[Exception], text: str
) -> None:
    """A dataset without a length or a bad option is refused before a trial begins."""
    with pytest.raises(error, match=text):
        torch_batch_process(Squares, dataset, **options)

    assert not Path(os.environ["CORE_SDK_HOME"], "runs").exists()


def test_two_runs_of_one_seed_draw_the_same() -> None:
    """Random numbers of a processor depend on the seed only."""
    drawn = []
    for seed in (7, 7, 8):
        Drawing.drawn = []
        torch_batch_process(Drawing, DATASET, batch_size=8, seed=seed)
        drawn.append(Drawing.drawn)

    assert drawn[0] == drawn[1] != drawn[2]
