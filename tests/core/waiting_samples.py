"""Samples whose loader's workers wait at one place of a training, which `trained_with_workers.py` names in `PLACE`.

They are no part of that script: a worker that is not forked from a worker of Core SDK could not import them.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
from torch.utils.data import Dataset

NUM_SAMPLES = 32


def wait_at(place: str) -> None:
    """Waits until `sent` exists if this is the place, and says by a file that it does."""
    if place == os.environ["PLACE"] and not Path("sent").exists():
        Path(f"ready-{os.environ.get('RANK', '0')}").touch()
        while not Path("sent").exists():
            time.sleep(0.01)


class Samples(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        wait_at("fetching")
        return torch.tensor([float(index)])


def start_worker(worker_id: int) -> None:
    wait_at("starting")
