"""Writes the series of `page_peers.py` with another tracker's own library; runs in that tracker's environment.

python benchmarks/_page_peer.py tensorboard|mlflow|trackio DIRECTORY NUM_POINTS
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

PROJECT = "points"
_STARTED = 1_750_000_000.0
_AT_ONCE = 10_000


def values(num_points: int) -> Iterator[tuple[int, float, float]]:
    """Steps, times and values; three single points are spikes."""
    heights = spikes(num_points)
    for step in range(num_points):
        yield step, _STARTED + step * 0.0137, heights.get(step, 1 / math.sqrt(step + 1) + 0.01 * math.sin(step * 0.001))


def spikes(num_points: int) -> dict[int, float]:
    """Their values, each of which a float of 32 bits holds exactly."""
    return {num_points * part // 1000: 1111.5 * factor for factor, part in enumerate((123, 500, 999), start=1)}


def write_tensorboard(directory: Path, num_points: int) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(directory / PROJECT))
    for step, time, value in values(num_points):
        writer.add_event(
            Event(wall_time=time, step=step, summary=Summary(value=[Summary.Value(tag="loss", simple_value=value)]))
        )
    writer.close()


def write_mlflow(directory: Path, num_points: int) -> None:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client = MlflowClient(f"sqlite:///{directory}/mlflow.db")
    run_id = client.create_run(client.create_experiment(PROJECT)).info.run_id
    points = (Metric("loss", value, int(time * 1000), step) for step, time, value in values(num_points))
    while batch := list(islice(points, 1000)):  # more are refused
        client.log_batch(run_id, metrics=batch)
    client.set_terminated(run_id)
    (directory / "run").write_text(run_id)


def write_trackio(directory: Path, num_points: int) -> None:
    os.environ["TRACKIO_DIR"] = str(directory)
    from trackio.sqlite_storage import SQLiteStorage

    points = values(num_points)
    while batch := list(islice(points, _AT_ONCE)):
        SQLiteStorage.bulk_log(PROJECT, "run", [{"loss": value} for *_, value in batch], [step for step, *_ in batch])


if __name__ == "__main__":
    write = {"tensorboard": write_tensorboard, "mlflow": write_mlflow, "trackio": write_trackio}[sys.argv[1]]
    write(Path(sys.argv[2]), int(sys.argv[3]))
