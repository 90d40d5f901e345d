"""Trials and checkpoints in a home, recorded as scripts would record them."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from client.trainings import START, Training
from saving import store_alone

from core_sdk._ground.records import CheckpointStored, CommandRecord, TrialRecord
from core_sdk._home import Home, TrialFolder
from core_sdk._home.storage import DirectoryStorage


def new_trial(
    home: Home, *, experiment: str = "digits", continued_from: str | None = None, hparams: dict[str, Any] | None = None
) -> TrialFolder:
    Home.create(home.root)
    folder = home.create_trial()
    folder.write_record(
        TrialRecord(
            trial_id=folder.trial_id,
            experiment_id=home.find_or_create_experiment(experiment).experiment_id,
            created=time.time(),
            seed=7,
            hparams=hparams or {},
            continued_from=continued_from,
            is_defined=True,
        )
    )
    return folder


def new_attempt(folder: TrialFolder, *, resumed_steps: int = 0, latest_checkpoint: str | None = None) -> Training:
    return Training(folder, max(folder.attempts(), default=0) + 1, resumed_steps, latest_checkpoint)


def store(
    training: Training, storage_id: str, steps: int, root: Path | None = None, *, hours: float | None = None
) -> None:
    """Stores a checkpoint of one file, `weights.bin`, in the home or in another directory, and records it."""
    storage = DirectoryStorage(root or training.folder.home_root / "checkpoints")
    with storage.stage(storage_id) as staging:
        (staging.path / "weights.bin").write_bytes(b"weights" * 100)
        manifest = store_alone(staging, {"steps_completed": steps})
    training.append(
        CheckpointStored(
            time=time.time() if hours is None else START + hours * 3600,
            storage_id=storage_id,
            storage=storage.url,
            steps_completed=steps,
            metadata={"steps_completed": steps},
            resources=manifest.resources,
        )
    )


def damage(home: Home, storage_id: str) -> None:
    """Flips one bit of the checkpoint's file."""
    path = home.checkpoints / storage_id / "weights.bin"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)


def record_script(folder: TrialFolder, script: Path, *arguments: str) -> None:
    """Says that the trial was started by running this script with our own interpreter."""
    command = CommandRecord(argv=[sys.executable, str(script), *arguments], cwd=str(script.parent), environment={})
    folder.write_command(command)
