"""Homes with trainings of many kinds, written as a training writes them: for tests, pictures and measurements."""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from saving import store_alone

from core_sdk import media
from core_sdk._ground.records import (
    FORMAT,
    Alert,
    AttemptStarted,
    CheckpointStored,
    CommandRecord,
    Ended,
    EnvironmentRecord,
    Media,
    Outcome,
    Profile,
    ProgressReported,
    Report,
    RetentionPolicy,
    SearcherMetric,
    TrialDescribed,
    TrialLabelsChanged,
    TrialRecord,
)
from core_sdk._home import Home
from core_sdk._home.folders import TrialFolder
from core_sdk._home.journal import encode_line
from core_sdk._home.registry import Registry
from core_sdk._home.storage import DirectoryStorage

SCRIPT = "<script>document.title='hacked'</script>"
HOSTILE = f"<img src=x onerror=\"document.title='hacked'\">{SCRIPT}"
"""A name that a page must show as text."""

NOTES = """\
## What we look for

Whether a **warm-up** of 500 steps is enough, see [the paper](https://example.org/paper).

| warm-up | accuracy |
|---|---|
| 100 | 0.93 |
| 500 | 0.97 |

<script>document.title = 'hacked'</script> <img src=x onerror="document.title='hacked'">
"""


def write_sample_home(root: Path, *, num_trials: int = 24, hostile_name: str = HOSTILE) -> Home:
    """Writes four experiments: ended, failed and paused trials, one with restarts and output, one of hostile names."""
    home, now, chance = Home.create(root), time.time(), random.Random(7)
    names = ["digits baseline", "resnet-50 ablation", "char-lm warm-up", hostile_name]
    for number in range(1, num_trials + 1):
        name = names[3] if number == num_trials else names[number % 3]
        _write_plain_trial(home, name, chance, created=now - (num_trials - number + 2) * 5400 * (1 + chance.random()))
    write_restarted_trial(home, created=now - 7200)
    with home.find_or_create_experiment("char-lm warm-up").edit() as record:
        record.notes, record.description = NOTES, "Is a longer warm-up worth its steps?"
        record.searcher_metric = SearcherMetric(name="loss", smaller_is_better=True)
        record.retention = RetentionPolicy(save_experiment_best=1, save_trial_best=1, save_trial_latest=1)
    registry = Registry(home)
    model = registry.create("digit reader", "Reads *digits*.", {"task": "vision"}, ["paper"])
    (checkpoint,) = (home.root / "checkpoints").glob("c00003-*")
    registry.register(model.model_id, home.folder(3), checkpoint.name, "first", NOTES)
    return home


def write_restarted_trial(home: Home, *, created: float, num_steps: int = 1200) -> TrialFolder:
    """Writes a trial with output, figures and checkpoints, of three attempts: crashed, paused and completed."""
    folder = _new_trial(
        home, "char-lm warm-up", created, {"lr": 3e-4, "warmup": 500, "model": {"layers": 6, "dropout": 0.1}}
    )
    bounds: list[tuple[int, int, Outcome]] = [(0, 520, "error"), (400, 900, "paused"), (900, num_steps, "completed")]
    for attempt, (first, last, outcome) in enumerate(bounds, start=1):
        begun = created + (attempt - 1) * 40 + first
        with _journal(folder, attempt, begun, resumed_steps=first) as lines:
            for step in range(first + 1, last + 1):
                at = begun + (step - first)
                drift = 0.012 * max(0, step - bounds[1][0]) if attempt == 1 else 0.0
                _write_language_model_reports(lines, step, at, drift, random.Random(step * 7 + attempt))
                if step == 778:
                    lines.append(Alert(time=at, title="Spike", description="the loss is 7", level="error"))
                if step % 5 == 0:
                    _write_figures(lines, at, random.Random(step))
                if step % 300 == 0:
                    lines.append(_checkpoint(home, folder, step, at))
            lines += [_media(folder, attempt, step, begun + step - first) for step in range(first + 100, last + 1, 100)]
            lines.append(ProgressReported(time=begun + last - first, progress=last / num_steps))
            lines.append(Ended(time=begun + last - first, outcome=outcome, error=_REASONS.get(outcome)))
        _write_log(folder, attempt, first, last, outcome)
        environment = EnvironmentRecord(
            git_commit="8c1f0e2d4b5a69788c1f0e2d4b5a69788c1f0e2d", git_is_dirty=attempt == 1, python="3.11.9",
            packages={"torch": "2.13.0", "numpy": "2.1.3"}, host="node-7", num_cpus=16, memory_bytes=128 << 30,
            gpus=("NVIDIA H100", "NVIDIA H100"),
        )  # fmt: skip
        folder.write_environment(attempt, environment)
    folder.write_command(CommandRecord(argv=["python3", "train.py"], cwd="/home/ada/char-lm", environment={}))
    folder.append_change(TrialDescribed(time=created, name="long warm-up", notes=NOTES))
    return folder


def write_long_trial(home: Home, num_points: int) -> TrialFolder:
    """Writes a trial with one metric of very many points and a spike of one of them."""
    folder = _new_trial(home, "long", time.time() - 86400, {"lr": 0.1})
    with _journal(folder, 1, time.time() - 86400) as lines:
        for step in range(num_points):
            value = 50.0 if step == num_points * 617 // 1000 else 1 / (1 + step / 9000) + 0.02 * math.sin(step / 37)
            lines.append(Report(time.time(), "training", step, {"loss": value}))
        lines.append(Ended(time=time.time(), outcome="completed"))
    return folder


def write_straight_trial(
    home: Home, *, created: float, num_steps: int, metric: str = "height", hparams: dict[str, Any] | None = None
) -> TrialFolder:
    """Writes a trial whose metric is the step, and whose use of the CPU is the number of seconds since its start."""
    folder = _new_trial(home, "straight", created, hparams or {"lr": 0.1})
    with _journal(folder, 1, created) as lines:
        for step in range(1, num_steps + 1):
            lines.append(Report(created + step, "training", step, {metric: step}))
            lines.append(Profile(time=created + step, group="cpu", metrics={"cpu_util_simple": step}))
        lines.append(Ended(time=created + num_steps, outcome="completed"))
    return folder


def write_many_trials(home: Home, num_trials: int, num_reports: int = 1) -> None:
    """Writes finished trials with two metrics and three hyperparameters each, as fast as possible."""
    chance, now = random.Random(3), time.time()
    experiments = [home.find_or_create_experiment(f"sweep {number}").experiment_id for number in range(20)]
    for number in range(num_trials):
        hparams = {
            "lr": 10 ** chance.uniform(-5, -1), "optimizer": chance.choice(["adam", "sgd"]), "layers": number % 12
        }  # fmt: skip
        folder = _trial(TrialFolder(home.root, number + 1), experiments[number % 20], now - number, hparams)
        with _journal(folder, 1, now - number) as lines:
            for step in range(1, num_reports + 1):
                lines.append(Report(now - number + step, "training", step, {"loss": chance.random() / step}))
            lines.append(Report(now, "validation", num_reports, {"loss": chance.random(), "accuracy": chance.random()}))
            lines.append(Ended(time=now, outcome="completed"))


def write_log_lines(folder: TrialFolder, num_lines: int) -> None:
    """Writes an output of very many numbered lines."""
    with folder.log_path(1).open("w") as log:
        for number in range(num_lines):
            log.write(f"[rank={number % 4}] INFO step {number}: loss {1 / (number + 1):.6f}\n")


_REASONS = {"error": "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB", "paused": "asked by core-sdk"}


def _write_plain_trial(home: Home, name: str, chance: random.Random, *, created: float) -> None:
    lr: float = 10 ** chance.uniform(-5, -1)
    hparams = {
        "lr": lr, "optimizer": chance.choice(["adam", "sgd", "adamw"]),
        "batch_size": chance.choice([16, 32, 64]),
        "model": {"layers": chance.randint(2, 12), "dropout": round(chance.random() / 2, 2)},
    }  # fmt: skip
    outcome: Outcome = chance.choices(("completed", "error", "canceled", "paused"), (8, 2, 1, 1))[0]
    num_steps = chance.randrange(150, 400) if outcome == "completed" else chance.randrange(20, 150)
    floor = 0.08 + 0.09 * abs(math.log10(lr) + 3) + 0.1 * chance.random()
    folder = _new_trial(home, name, created, hparams)
    with _journal(folder, 1, created) as lines:
        for step in range(1, num_steps + 1):
            at, loss = created + step * 9, floor + 2.2 * math.exp(-step / 40) + chance.gauss(0, 0.03)
            lines.append(Report(at, "training", step, {"loss": loss, "lr": lr * min(1, step / 50)}))
            if step % 25 == 0 or step == num_steps:
                metrics: dict[str, int | float | str] = {"loss": loss * 1.1, "accuracy": max(0.0, 1 - loss / 2.4)}
                lines.append(Report(at, "validation", step, metrics))
        lines.append(_checkpoint(home, folder, num_steps, created + num_steps * 9))
        lines.append(Ended(time=created + num_steps * 9, outcome=outcome, error=_REASONS.get(outcome)))
    labels = chance.choice([[], [], ["baseline"], ["paper", "v2"]])
    if labels:
        folder.append_change(TrialLabelsChanged(time=created, added=labels))


def _write_language_model_reports(lines: _Lines, step: int, at: float, drift: float, chance: random.Random) -> None:
    loss = drift + 1.1 + 3.4 * math.exp(-step / 260) + chance.gauss(0, 0.05) + (6.0 if step == 777 else 0.0)
    metrics: dict[str, int | float | str] = {
        "loss": "NaN" if step in range(1000, 1006) else loss, "learning_rate": 3e-4 * min(1, step / 500),
        "grad_norm": abs(chance.gauss(1.0, 0.3)) * (25.0 if step == 777 else 1.0), "epochs": step / 400,
    }  # fmt: skip
    lines.append(Report(at, "training", step, metrics))
    if step % 100 == 0:
        validation: dict[str, int | float | str] = {
            "loss": 1.2 + 3.2 * math.exp(-step / 280), "perplexity": math.exp(1.2 + 3.2 * math.exp(-step / 280)),
            "epochs": step / 400,
        }  # fmt: skip
        lines.append(Report(at + 0.1, "validation", step, validation))


def _write_figures(lines: _Lines, at: float, chance: random.Random) -> None:
    groups: Mapping[str, dict[str, int | float | str]] = {
        "cpu": {"cpu_util_simple": 40 + 20 * chance.random()},
        "memory": {"memory_free": (90 + 5 * chance.random()) * 2**30},
        "disk": {"disk_util./": 61.0, "disk_throughput_read": 4e7 * chance.random()},
        "network": {"net_throughput_sent": 2e6 * chance.random(), "net_throughput_recv": 9e6 * chance.random()},
        "gpu": {"gpu_util.GPU-0": 80 + 18 * chance.random(), "gpu_util.GPU-1": 78 + 18 * chance.random()},
    }
    for group, metrics in groups.items():
        lines.append(Profile(time=at, group=group, metrics=metrics))


def _write_log(folder: TrialFolder, attempt: int, first: int, last: int, outcome: str) -> None:
    lines = [f"\x1b[1mattempt {attempt}\x1b[0m starts at step {first}", f"{HOSTILE} is a name"]
    for step in range(first + 1, last + 1):
        lines += [f"[rank={rank}] 2026-01-01 INFO step {step}: loss {4 / (1 + step / 300):.4f}" for rank in range(2)]
        if step % 150 == 0:
            lines.append(f"\x1b[33mWARNING\x1b[0m the loader waited {step % 7} s for data")
    if outcome == "error":
        lines += [
            "\x1b[31mERROR\x1b[0m training failed", "Traceback (most recent call last):",
            '  File "train.py", line 81, in <module>', _REASONS["error"],
        ]  # fmt: skip
    folder.log_path(attempt).write_text("\n".join(lines) + "\n")


def _checkpoint(home: Home, folder: TrialFolder, step: int, at: float) -> CheckpointStored:
    storage_id, metadata = f"c{folder.trial_id:05d}-{step:06d}", {"steps_completed": step, "note": HOSTILE}
    storage = DirectoryStorage(home.root / "checkpoints")
    with storage.stage(storage_id) as staging:
        (staging.path / "model.pt").write_bytes(bytes(40_000))
        (staging.path / "optimizer.pt").write_bytes(bytes(80_000))
        store_alone(staging, metadata)
    return CheckpointStored(
        time=at, storage_id=storage_id, storage=storage.url, steps_completed=step, metadata=metadata,
        resources={"model.pt": 40_000, "optimizer.pt": 80_000},
    )  # fmt: skip


def _media(folder: TrialFolder, attempt: int, step: int, at: float) -> Report:
    """Returns a report with one medium of each kind, some of which would do harm where they ran."""
    grid = np.arange(64) / 64
    classes, guesses = [0, 1, 2, 0, 1, 2], [0, 1, 2, step % 3, attempt % 3, 2]
    harmful = f"<!doctype html>{SCRIPT}<p>a figure at {step}</p>"
    drawing = f"<svg xmlns='http://www.w3.org/2000/svg' width='80' height='60'>{SCRIPT}</svg>"
    rows = [[HOSTILE, step / 7, None], ["mild", 2.5, True], ["ten", 10, False]]
    waves = [np.sin(grid[:, None] * step / 90 + grid * k) / 2 + 0.5 for k in (4, 7, 11)]
    values: dict[str, Media] = {
        "samples": media.Image(np.stack(waves, -1), caption=f"sampled at step {step}"),
        "weights": media.Histogram(np.random.default_rng(step).normal(size=500) * 100 / step),
        "generated": media.Text(f"The first line\n{SCRIPT}\nis of step {step}\n"),
        "classes": media.ConfusionMatrix(targets=classes, predictions=guesses, labels=["cat", "dog", "fox"]),
        "worst": media.Table(rows, ["text", "loss", "ok"]),
        "attention": media.Image(drawing.encode(), caption=HOSTILE),
        "rollout": media.Video(np.zeros((4, 16, 16, 3))),
        "surface": Media(
            msgspec.structs.replace(media.Text(harmful).file, kind="figure", media_type="text/html"), harmful.encode()
        ),
    }
    if attempt == 1:
        values["tone"] = media.Audio(np.sin(np.arange(4000) / 5), 8000)
    folder.media_path.mkdir(exist_ok=True)
    for one in values.values():
        (folder.media_path / one.file.name).write_bytes(one.content)
    named = {name: {"$media": msgspec.to_builtins(one.file)} for name, one in values.items()}
    return Report(at + 0.2, "validation", step, {}, json_metrics=named)


_Lines = list[Any]


@contextlib.contextmanager
def _journal(folder: TrialFolder, attempt: int, begun: float, *, resumed_steps: int = 0) -> Iterator[_Lines]:
    lines: _Lines = [
        AttemptStarted(
            time=begun, format=FORMAT, trial_id=folder.trial_id, attempt=attempt, host="node-7", pid=1, sdk_version="0",
            resumed_steps=resumed_steps,
        )
    ]  # fmt: skip
    yield lines
    with folder.journal_path(attempt).open("wb") as journal:
        journal.writelines(map(encode_line, lines))


def _new_trial(home: Home, experiment: str, created: float, hparams: dict[str, Any]) -> TrialFolder:
    return _trial(home.create_trial(), home.find_or_create_experiment(experiment).experiment_id, created, hparams)


def _trial(folder: TrialFolder, experiment_id: int, created: float, hparams: dict[str, Any]) -> TrialFolder:
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.write_record(
        TrialRecord(
            trial_id=folder.trial_id, experiment_id=experiment_id, created=created, seed=0, hparams=hparams,
            is_defined=True,
        )
    )  # fmt: skip
    return folder
