"""Small searches with real trials, and what their records say of them."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path

from core_sdk._execution.experiments.events import read_new_events
from core_sdk._execution.experiments.submission import submit
from core_sdk._ground.records import Event, SearchRecord
from core_sdk._home import Home

TRAIN = textwrap.dedent(
    """
    import time

    from core_sdk import core

    with core.init() as context:
        hparams = context.info.trial.hparams
        first = 1
        if context.info.latest_checkpoint is not None:
            with context.checkpoint.restore_path(context.info.latest_checkpoint) as path:
                first = int((path / "epoch").read_text()) + 1
        for epoch in range(first, 21):
            context.train.report_validation_metrics(
                steps_completed=epoch, metrics={"loss": hparams["x"] + 1 / epoch, "epochs": epoch}
            )
            if context.preempt.should_preempt() or epoch == 20:
                with context.checkpoint.store_path({"steps_completed": epoch}) as (path, _):
                    (path / "epoch").write_text(str(epoch))
                break
            time.sleep(0.2)
    """
)

ASHA = """
name: search
entrypoint: [python, train.py]
hyperparameters: {{x: {{type: double, minval: 0, maxval: 1}}}}
searcher:
  name: async_halving
  metric: loss
  max_trials: {max_trials}
  max_concurrent_trials: {max_concurrent}
  num_rungs: 2
  divisor: 2
  time_metric: epochs
  max_time: {max_time}
reproducibility: {{experiment_seed: 1}}
"""


PROMOTION = """
name: search
entrypoint: [python, train.py]
hyperparameters: {x: {type: double, minval: 0, maxval: 1}}
searcher:
  name: async_halving
  metric: loss
  max_trials: 4
  max_concurrent_trials: 2
  num_rungs: 2
  divisor: 2
  max_length: {epochs: 4}
reproducibility: {experiment_seed: 1}
"""

OPERATIONS = textwrap.dedent(
    """
    from core_sdk import core

    with core.init() as context:
        x = context.info.trial.hparams["x"]
        epoch = 0
        if context.info.latest_checkpoint is not None:
            with context.checkpoint.restore_path(context.info.latest_checkpoint) as path:
                epoch = int((path / "epoch").read_text())
        for operation in context.searcher.operations():
            while epoch < operation.length:
                epoch += 1
                print("epoch", epoch, flush=True)
            context.train.report_validation_metrics(steps_completed=epoch, metrics={"loss": x + 1 / epoch})
            with context.checkpoint.store_path({"steps_completed": epoch}) as (path, _):
                (path / "epoch").write_text(str(epoch))
            operation.report_completed(x + 1 / epoch)
    """
)


def submit_search(
    home: Home, tmp_path: Path, *, max_trials: int = 3, max_concurrent: int = 1, max_time: int = 20, train: str = TRAIN
) -> int:
    text = ASHA.format(max_trials=max_trials, max_concurrent=max_concurrent, max_time=max_time)
    return submit_text(home, tmp_path, text, train)


def submit_text(home: Home, tmp_path: Path, text: str, train: str, *, is_paused: bool = False) -> int:
    code = tmp_path / "code"
    code.mkdir(exist_ok=True)
    (code / "train.py").write_text(train)
    home = Home.create(home.root)
    return submit(home, text, source="asha.yaml", model_dir=code, is_paused=is_paused).experiment_id


def events_of(home: Home, experiment_id: int) -> list[Event]:
    path = home.experiment(experiment_id).events_path
    return [event for events, _ in read_new_events(path, 0) for event in events]


def await_end(home: Home, experiment_id: int, timeout_s: float = 120) -> SearchRecord:
    """Waits for the end of the experiment and returns its search record."""
    folder = home.experiment(experiment_id)
    deadline = time.monotonic() + timeout_s
    log = home.root / "master.log"
    while (search := folder.read().search) is None or not search.has_ended:
        assert time.monotonic() < deadline, f"it has not ended: {search}\n{log.read_text() if log.exists() else ''}"
        time.sleep(0.05)
    return search
