"""Kills training processes with `kill -9` at random moments, and looks at what they left.

    python benchmarks/kills.py [--kills 1000] [--seed 0]

Each process reports without a pause, and after every 150 reports stores a checkpoint and deletes all but two. Counted
are reports that had returned and are missing, doubled or altered; visible checkpoints that are not whole; and trials
that had stored a checkpoint and have none to resume from. Exits with 1 if any count is not 0.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from core_sdk._ground.records import MANIFEST_NAME, Report, metrics_from_json
from core_sdk._home import Home, TrialFolder
from core_sdk._home.attempts.continuation import newest_good_checkpoint
from core_sdk._home.journal import read_records
from core_sdk._home.storage import DirectoryStorage
from core_sdk.errors import CheckpointError

MAX_LIFE_S = 0.08
REPORTS_PER_CHECKPOINT = 150
STORED = 1 << 62
"""In an acknowledgement: not a report but a checkpoint, stored at this step."""


@dataclass
class Tally:
    num_acknowledged: int = 0
    num_stored: int = 0
    num_lost: int = 0
    num_altered: int = 0
    num_incomplete: int = 0
    num_stranded: int = 0

    def is_clean(self) -> bool:
        return not (self.num_lost or self.num_altered or self.num_incomplete or self.num_stranded)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    moments = random.Random(arguments.seed)
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["core_sdk.core"])
    tally = Tally()
    with tempfile.TemporaryDirectory() as scratch:
        home = Home(Path(scratch))
        for trial_id in range(1, arguments.kills + 1):
            reader, writer = processes.Pipe(duplex=False)
            child = processes.Process(target=train_until_killed, args=(home.root, writer))
            child.start()
            writer.close()
            reader.recv_bytes()  # training has begun
            time.sleep(moments.uniform(0, MAX_LIFE_S))
            os.kill(child.pid or 0, signal.SIGKILL)
            acknowledged = read_acknowledgements(reader)
            child.join()
            count_reports(tally, home.trial(trial_id), [step for step in acknowledged if step < STORED])
            count_checkpoints(tally, home.trial(trial_id), [step - STORED for step in acknowledged if step >= STORED])
            # What the next process would do first, here so that the storage stays small.
            for storage_id in checkpoint_ids(home.checkpoints):
                DirectoryStorage(home.checkpoints).delete(storage_id)
    print(
        f"{arguments.kills} kills: {tally.num_acknowledged:,} reports acknowledged, {tally.num_lost} lost, "
        f"{tally.num_altered} doubled or altered; {tally.num_stored:,} checkpoints stored, "
        f"{tally.num_incomplete} visible and incomplete, {tally.num_stranded} trials with none to resume from"
    )
    sys.exit(0 if tally.is_clean() else 1)


def train_until_killed(root: Path, acknowledge: Connection) -> None:
    os.environ["CORE_SDK_HOME"] = str(root)
    from core_sdk import core

    with core.init(name="kills") as core_context:
        acknowledge.send_bytes(b"begun")
        descriptor = acknowledge.fileno()
        stored: list[str] = []
        for step in range(1, sys.maxsize):
            core_context.train.report_training_metrics(step, {"value": step / 7, "step": step})
            os.write(descriptor, step.to_bytes(8, "big"))
            if step % REPORTS_PER_CHECKPOINT == 0:
                with core_context.checkpoint.store_path({"steps_completed": step}) as (path, storage_id):
                    for name in ("model", "optimizer", "generator"):
                        (path / name).write_bytes(os.urandom(20_000))
                os.write(descriptor, (STORED + step).to_bytes(8, "big"))
                stored.append(storage_id)
                while len(stored) > 2:
                    core_context.checkpoint.delete(stored.pop(0))


def read_acknowledgements(reader: Connection) -> list[int]:
    """Returns all whole acknowledgements in the pipe, which outlives its writer."""
    content = b""
    while block := os.read(reader.fileno(), 1 << 20):
        content += block
    return [int.from_bytes(content[offset : offset + 8], "big") for offset in range(0, len(content) - 7, 8)]


def count_reports(tally: Tally, folder: TrialFolder, acknowledged: list[int]) -> None:
    steps = []
    for record in read_records(folder.journal_path(1)):
        if isinstance(record, Report):
            steps.append(record.steps_completed)
            expected = {"value": record.steps_completed / 7, "step": record.steps_completed}
            tally.num_altered += metrics_from_json(record.metrics) != expected
    tally.num_acknowledged += len(acknowledged)
    tally.num_lost += len(set(acknowledged) - set(steps))
    tally.num_altered += len(steps) - len(set(steps))


def checkpoint_ids(directory: Path) -> list[str]:
    return [manifest.parent.name for manifest in directory.glob(f"[!.]*/{MANIFEST_NAME}")]


def count_checkpoints(tally: Tally, folder: TrialFolder, stored: list[int]) -> None:
    tally.num_stored += len(stored)
    storage = DirectoryStorage(folder.home_root / "checkpoints")
    for storage_id in checkpoint_ids(storage.root):
        try:
            storage.verify(storage_id)
        except CheckpointError as error:
            print(error)
            tally.num_incomplete += 1
    tally.num_stranded += bool(stored) and newest_good_checkpoint(folder).checkpoint is None


if __name__ == "__main__":
    main()
