"""Reports 1 ms apart to one tracker, then kills itself; runs in the environment of that tracker.

python benchmarks/_lost_peer.py ours|trackio|wandb|mlflow|tensorboardX DIRECTORY NUM_REPORTS

Writes the nanoseconds of each report to standard output, 8 bytes each, as soon as it has returned.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

Report = Callable[[int, dict[str, float]], object]


def ours(directory: str) -> Report:
    os.environ |= {"CORE_SDK_HOME": directory, "CORE_SDK_QUIET": "1"}
    from core_sdk import core

    context = core.init(name="lost")
    context.start()
    return lambda step, metrics: context.train.report_training_metrics(step, metrics)


def trackio(directory: str) -> Report:
    os.environ["TRACKIO_DIR"] = directory
    import trackio

    trackio.init(project="lost")
    return lambda step, metrics: trackio.log(metrics, step=step)


def wandb(directory: str) -> Report:
    import wandb

    run = wandb.init(project="lost", mode="offline", dir=directory)
    return lambda step, metrics: run.log(metrics, step=step)


def mlflow(directory: str) -> Report:
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{directory}/mlflow.db")
    mlflow.start_run()
    return lambda step, metrics: mlflow.log_metrics(metrics, step=step)


def tensorboard_x(directory: str) -> Report:
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(directory)
    return lambda step, metrics: [writer.add_scalar(name, value, step) for name, value in metrics.items()]


TRACKERS = {"ours": ours, "trackio": trackio, "wandb": wandb, "mlflow": mlflow, "tensorboardX": tensorboard_x}


def main() -> None:
    answers = os.dup(1)
    os.dup2(2, 1)  # trackers print
    report = TRACKERS[sys.argv[1]](sys.argv[2])
    for step in range(int(sys.argv[3])):
        metrics = {"loss": step / 7, "accuracy": 0.5, "learning_rate": 0.001}
        begun = time.perf_counter_ns()
        report(step, metrics)
        os.write(answers, (time.perf_counter_ns() - begun).to_bytes(8, "big"))
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
