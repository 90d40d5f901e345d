"""A trial's own program, or a writer that evaluates its checkpoints, until it is killed.

    python writing.py trainer|NAME ACKNOWLEDGED

Of each report that has returned, a line in the file says what it was.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from core_sdk import core
from core_sdk._ground.records import CheckpointStored
from core_sdk._home import Home
from core_sdk._home.history import read_history
from core_sdk.errors import WriterRefusedError

_STEPS_BETWEEN_CHECKPOINTS = 5
_REPORTS_BETWEEN_LOOKS = 20

Acknowledge = Callable[[int, int, int], None]
"""Is told attempt, step and value."""


def main(name: str, acknowledged: str) -> None:
    file = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def acknowledge(attempt: int, step: int, value: int) -> None:
        os.write(file, f"{name} {attempt} {step} {value}\n".encode())

    if name == "trainer":
        train(acknowledge)
    evaluate(name, acknowledge)


def train(acknowledge: Acknowledge) -> None:
    with core.init(job_id="trainer") as context:
        step = context.info.trial.steps_completed
        while True:
            step += 1
            value = time.time_ns()
            context.train.report_training_metrics(step, {"value": value})
            acknowledge(context.info.trial.attempt, step, value)
            if step % _STEPS_BETWEEN_CHECKPOINTS == 0:
                with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
                    (path / "step").write_text(str(step))
            time.sleep(0.002)


def evaluate(name: str, acknowledge: Acknowledge) -> None:
    folder = Home(Path(os.environ["CORE_SDK_HOME"])).trial(1)
    while True:
        try:
            context = core.init(trial=1, writer=name)
            break
        except WriterRefusedError:  # the one before has just been killed
            time.sleep(0.01)
    with context:
        chance = random.Random(os.getpid())
        while True:
            # Reading the whole history for each report would take ever longer, and few kills would meet a report.
            checkpoints = [(one.attempt, one.record) for one in read_history(folder).checkpoints]
            for attempt, record in chance.choices(checkpoints, k=_REPORTS_BETWEEN_LOOKS):
                value = time.time_ns()
                report(context, record, value)
                acknowledge(attempt, record.steps_completed, value)
                time.sleep(0.002)


def report(context: core.Context, checkpoint: CheckpointStored, value: int) -> None:
    context.train.report_validation_metrics(
        checkpoint.steps_completed, {"value": value}, checkpoint=checkpoint.storage_id
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
