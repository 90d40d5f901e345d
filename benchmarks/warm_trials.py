"""Measures the cost of 64 tiny trials of a search: warm, afresh, and by Optuna in one process.

python benchmarks/warm_trials.py [--trials 64]

Each trial trains a small model for a few batches and reports its loss. Our trials are processes, two at a time; Optuna
calls the same function again and again in the process that has imported torch, which shares nothing but that with ours:
no trial there can be stopped, killed, logged or resumed by itself. Wall time, and the time for which the machine's
processors were busy, the start of master and Python included: run it alone.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from core_sdk._ground.records import Report
from core_sdk._home import Home, open_view
from core_sdk._home.journal import read_records

TARGET = 1.3
TRAIN = """
import torch

def train(lr):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    features = torch.randn(256, 32)
    for _ in range(20):
        loss = (model(features) - features[:, :1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()
"""
TRIAL = """
from core_sdk import core
from training import train

with core.init() as context:
    loss = train(context.info.trial.hparams["lr"])
    context.train.report_validation_metrics(1, {"loss": loss})
"""
OPTUNA = """
import sys
import optuna
from training import train

optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
study.optimize(lambda trial: train(trial.suggest_float("lr", 1e-3, 1e-1, log=True)), n_trials=int(sys.argv[1]))
"""
CONFIG = """
name: warm
entrypoint: [{python}, trial.py]
warm: {warm}
hyperparameters: {{lr: {{type: log, base: 10, minval: -3, maxval: -1}}}}
searcher: {{name: random, metric: loss, max_trials: {trials}, max_concurrent_trials: 2}}
resources: {{slots_per_trial: 0}}
reproducibility: {{experiment_seed: 0}}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=64)
    trials = parser.parse_args().trials
    with tempfile.TemporaryDirectory() as directory:
        code = Path(directory, "code")
        code.mkdir()
        (code / "training.py").write_text(TRAIN)
        (code / "trial.py").write_text(TRIAL)
        (code / "optuna_search.py").write_text(OPTUNA)
        optuna = measured([sys.executable, "optuna_search.py", str(trials)], code, {})
        print(f"Optuna, in its process: {optuna[0]:6.1f} s, {optuna[1]:6.1f} s of processors")
        ratios = []
        for warm in ("true", "false"):
            home = Path(directory, f"home-{warm}")
            (code / "experiment.yaml").write_text(CONFIG.format(python=sys.executable, warm=warm, trials=trials))
            command = [sys.executable, "-m", "core_sdk._interfaces.cli", "experiment", "create", "experiment.yaml", "."]
            wall, cpu = measured([*command, "--local"], code, {"CORE_SDK_HOME": str(home)})
            ratios.append((wall / optuna[0], cpu / optuna[1]))
            word = "ours, warm:  " if warm == "true" else "ours, afresh:"
            print(
                f"{word}           {wall:6.1f} s, {cpu:6.1f} s of processors; {ratios[-1][0]:.2f} and "
                f"{ratios[-1][1]:.2f} times Optuna's; from claim to report "
                f"{statistics.median(first_reports(home)):.2f} s"
            )
    is_met = max(ratios[0]) <= TARGET
    print(f"{'met' if is_met else 'MISSED'}: target {TARGET} times Optuna's")
    sys.exit(0 if is_met else 1)


def measured(command: list[str], directory: Path, variables: dict[str, str]) -> tuple[float, float]:
    """Runs a command. Returns its wall time and the time for which the machine's processors were busy, in seconds."""
    environment = {**os.environ, **variables, "CORE_SDK_QUIET": "1"}
    busy, started = psutil.cpu_times(), time.perf_counter()
    subprocess.run(command, cwd=directory, env=environment, check=True, stdout=subprocess.DEVNULL)
    wall = time.perf_counter() - started
    return wall, sum(psutil.cpu_times()[index] - busy[index] for index in (0, 1, 2))


def first_reports(path: Path) -> list[float]:
    """Returns the seconds from the claim to the first report, of the later half of the trials."""
    home = Home.create(path)
    with open_view(home) as view:
        trials = [trial.trial_id for trial in view.trials()]
    seconds = []
    for trial_id in sorted(trials)[len(trials) // 2 :]:
        folder = home.folder(trial_id)
        records = read_records(folder.journal_path(1))
        reported = next(record.time for record in records if isinstance(record, Report))
        seconds.append(reported - folder.run_info_path(1).stat().st_mtime)
    return seconds


if __name__ == "__main__":
    main()
