"""Writes a home of many trials for measurements of the web page, in a minute or two.

    python benchmarks/page_home.py /tmp/page-home --trials 10000 --points 10000000

Trial 1 has one series of 10^6 points, with a few spikes, and 10^6 lines of output. The other trials share what is left
of the points, in three series each; some have checkpoints, labels, several attempts and profiler figures. Journals
are written directly, as scripts, copies and crashes leave them.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path

from core_sdk._ground.records import (
    FORMAT,
    AttemptStarted,
    CheckpointStored,
    Ended,
    Profile,
    Record,
    Report,
    TrialRecord,
    encode_file,
)
from core_sdk._home import Home, TrialFolder
from core_sdk._home.journal import encode_line

NUM_LONG = 1_000_000
_TRIALS_PER_EXPERIMENT = 100
_METRICS_PER_REPORT = 3
_EPOCH = 1_750_000_000.0
_SPIKES = (123_456, 500_000, 999_998)
_OPTIMIZERS = ("adam", "sgd", "lion", "adafactor")
_LABELS = ("baseline", "ablation", "paper", "broken")
_LINES_AT_ONCE = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("home", type=Path)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--points", type=int, default=10_000_000)
    arguments = parser.parse_args()
    start = time.perf_counter()
    write_home(Home.create(arguments.home), arguments.trials, arguments.points)
    print(f"{arguments.trials:,} trials with {arguments.points:,} points in {time.perf_counter() - start:.0f} s")


def write_home(home: Home, num_trials: int, num_points: int) -> None:
    """Where there are fewer than 2 * 10^6 points, the first trial is like the others."""
    has_long = num_points >= 2 * NUM_LONG
    num_short = num_trials - has_long
    num_reports = max(1, (num_points - has_long * NUM_LONG) // (_METRICS_PER_REPORT * max(1, num_short)))
    drawn = random.Random(0)
    for number in range(num_trials):
        if number % _TRIALS_PER_EXPERIMENT == 0:
            experiment_id = home.find_or_create_experiment(
                f"experiment {number // _TRIALS_PER_EXPERIMENT}"
            ).experiment_id
        folder = home.create_trial()
        hparams = {
            "lr": 10 ** drawn.uniform(-5, -1),
            "optimizer": drawn.choice(_OPTIMIZERS),
            "model": {"layers": drawn.randint(1, 24), "dropout": round(drawn.uniform(0, 0.5), 3)},
            "batch_size": 2 ** drawn.randint(4, 10),
        }
        if has_long and number == 0:
            _write_journal(folder, 1, _long_reports())
            _write_log(folder.log_path(1))
        else:
            _write_trial(folder, hparams, num_reports, drawn)
        record = TrialRecord(
            trial_id=folder.trial_id,
            experiment_id=experiment_id,
            created=_EPOCH + 60 * number,
            seed=number,
            hparams=hparams,
            labels=drawn.sample(_LABELS, drawn.randint(0, 2)),
        )
        (folder.path / "trial.json").write_bytes(encode_file(record))


def _write_trial(folder: TrialFolder, hparams: dict[str, object], num_reports: int, drawn: random.Random) -> None:
    reports = list(_reports(hparams, num_reports, drawn))
    if folder.trial_id % 50 == 0:  # interrupted, and gone on from a checkpoint
        half = len(reports) // 2
        _write_journal(folder, 1, reports[: half + half // 4], outcome=None)
        _write_journal(folder, 2, reports[half:], resumed_steps=half)
    else:
        _write_journal(folder, 1, reports)


def _reports(hparams: dict[str, object], num_reports: int, drawn: random.Random) -> Iterator[Record]:
    speed = 0.02 + abs(math.log10(float(str(hparams["lr"]))) + 3) * 0.02
    for step in range(1, num_reports + 1):
        loss = math.exp(-step * 0.01 / speed) + drawn.random() * 0.05
        metrics = {"loss": loss, "accuracy": 1 - loss / 2, "learning_rate": 0.1 * 0.999**step}
        group = "validation" if step % 10 == 0 else "training"
        yield Report(_EPOCH + step * 0.37, group, step, dict(metrics))
        if step % 100 == 0:
            yield Profile(time=_EPOCH + step * 0.37, group="cpu", metrics={"cpu_util_simple": drawn.random() * 100})
        if step == num_reports // 2:
            yield CheckpointStored(
                time=_EPOCH + step,
                storage_id=f"{drawn.getrandbits(128):032x}",
                storage="s3://bucket",
                steps_completed=step,
                metadata={},
                resources={"weights.pt": 123_456_789},
            )


def _long_reports() -> Iterator[Record]:
    for step in range(NUM_LONG):
        loss = 1e3 if step in _SPIKES else 1 / math.sqrt(step + 1) + 0.01 * math.sin(step * 0.001)
        yield Report(_EPOCH + step * 0.0137, "training", step, {"loss": loss})


def _write_journal(
    folder: TrialFolder,
    attempt: int,
    records: Iterator[Record] | list[Record],
    *,
    resumed_steps: int = 0,
    outcome: str | None = "completed",
) -> None:
    with folder.journal_path(attempt).open("wb") as journal:
        begun = AttemptStarted(
            time=_EPOCH + attempt,
            format=FORMAT,
            trial_id=folder.trial_id,
            attempt=attempt,
            host="node0",
            pid=1,
            sdk_version="0",
            resumed_steps=resumed_steps,
        )
        journal.write(encode_line(begun))
        for record in records:
            journal.write(encode_line(record))
        if outcome is not None:
            journal.write(encode_line(Ended(time=_EPOCH + 1e5, outcome="completed")))


def _write_log(path: Path) -> None:
    with path.open("wb") as log:
        for first in range(0, NUM_LONG, _LINES_AT_ONCE):
            numbers = range(first, first + _LINES_AT_ONCE)
            log.write(b"".join(b"[rank=%d] INFO: [7] train: step %d done\n" % (one % 4, one) for one in numbers))


if __name__ == "__main__":
    main()
