"""The script that the jobs run, and what it has left in the home."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core_sdk._ground.records import AttemptStarted, CheckpointStored, Ended, Report
from core_sdk._home import Home
from core_sdk._home.history import read_history
from core_sdk._home.journal import read_records
from core_sdk.errors import TrialNotFoundError

# Trains until there is a file `finish`, stores every fifth step, and prints its place, its info and its steps.
SOURCE = """\
import sys, time
from pathlib import Path
from core_sdk import core, get_cluster_info


def restore(context):
    latest = context.info.latest_checkpoint
    if latest is None:
        return 0
    with context.checkpoint.restore_path(latest) as path:
        return int((path / "step").read_text())


def save(context, step):
    if context.distributed.is_chief:
        with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
            (path / "step").write_text(str(step))


def is_finished(context):
    return context.distributed.broadcast(Path("finish").exists() if context.distributed.is_chief else None)


def train(context):
    step = restore(context)
    print("began", context.distributed.rank, "of", context.distributed.size, "at", step, flush=True)
    while not is_finished(context):
        step += 1
        context.train.report_training_metrics(step, {"loss": 1 / step})
        if step % 5 == 0:
            save(context, step)
        if context.preempt.should_preempt():
            if step % 5:
                save(context, step)
            print("stopped", context.distributed.rank, "at", step, flush=True)
            return
        time.sleep(0.02)


if sys.argv[1] == "ranks":
    import torch.distributed

    assert (get_cluster_info() is None) == ("given" not in sys.argv), "a trial has begun"
    torch.distributed.init_process_group("gloo")
    with core.DistributedContext.from_torch_distributed() as distributed:
        with core.init(distributed=distributed, name="slurm") as context:
            info = context.info
            print("told", info.container_addrs, info.container_rank, info.container_slot_counts, flush=True)
            train(context)
    torch.distributed.destroy_process_group()
else:
    with core.init(name="slurm") as context:
        train(context)
"""


@dataclass(frozen=True)
class Trial:
    """What the home says of it."""

    starts: Sequence[AttemptStarted]
    steps: Sequence[int]
    """Of the reports that count."""
    checkpoints: Sequence[int]
    outcome: str | None
    """Of the last attempt."""


def write_script(directory: Path) -> Path:
    script = directory / "train.py"
    script.write_text(SOURCE)
    return script


def finish(directory: Path) -> None:
    """Lets the trainings that work in this directory come to their end."""
    (directory / "finish").touch()


def read_trial(home: Home, trial_id: int = 1) -> Trial:
    folder = home.trial(trial_id)
    records = [list(read_records(folder.journal_path(attempt))) for attempt in folder.attempts()]
    starts = [record for attempt in records for record in attempt if isinstance(record, AttemptStarted)]
    steps: list[int] = []
    for start, attempt in zip(starts, records, strict=True):
        steps = [step for step in steps if step <= start.resumed_steps]
        steps += [record.steps_completed for record in attempt if isinstance(record, Report)]
    return Trial(
        starts=starts,
        steps=steps,
        checkpoints=[each.record.steps_completed for each in read_history(folder).checkpoints],
        outcome=next((record.outcome for record in records[-1] if isinstance(record, Ended)), None),
    )


def has_stored(home: Home, num_attempts: int = 1) -> bool:
    """Returns whether the last of so many attempts has stored a checkpoint."""
    with contextlib.suppress(TrialNotFoundError, FileNotFoundError):
        folder = home.trial(1)
        if len(folder.attempts()) >= num_attempts:
            return any(
                isinstance(record, CheckpointStored) for record in read_records(folder.journal_path(num_attempts))
            )
    return False
