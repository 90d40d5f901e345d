"""Measures how near searches come to the best hyperparameters of LCBench, by epochs, beside other tools.

    git clone --depth 1 https://github.com/slds-lmu/yahpo_data
    pip install onnxruntime numpy optuna
    python benchmarks/search_regret.py --data yahpo_data/lcbench

The trainings are those of YAHPO Gym's surrogate of LCBench (Pfisterer et al. 2022): its file `model.onnx` gives the
validation accuracy after each of 52 epochs for seven hyperparameters, on 16 tasks. Four workers train at the same time.
The regret is the distance of the best accuracy that was reported from the best that is known, relative to that of a
median point. The figures are means over tasks and seeds; behind ± is the standard error of the seeds.

Tools whose environments exclude each other are measured one by one: `--results FILE` keeps what was measured, and adds
to it. Ray needs `ray[tune]`, BOHB needs `hpbandster ConfigSpace`, SMAC needs `smac`. `--contender` may be given several
times. Nothing is fetched while it runs.
"""

from __future__ import annotations

import argparse
import heapq
import json
import statistics
import tempfile
import time
from pathlib import Path

from _regret_contenders import CONTENDERS, NUM_WORKERS, Contender, Job
from _regret_surrogate import NUM_EPOCHS, TASKS, Surrogate, Training

BUDGETS = (250, 500, 1000, 2000)
Runs = dict[str, dict[str, list[float]]]
"""The regrets in percent at the budgets, for each contender, task and seed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with model.onnx and encoding.json")
    parser.add_argument("--contender", action="append", choices=CONTENDERS, help="default: ours and Optuna's")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--tasks", type=int, default=len(TASKS), help="how many of the tasks")
    parser.add_argument("--results", type=Path, help="a JSON file to read and extend")
    options = parser.parse_args()
    if options.data is None:
        print("skipped: --data must name a folder with LCBench's surrogate; --help says where it comes from")
        return
    runs: Runs = json.loads(options.results.read_text()) if options.results and options.results.exists() else {}
    chosen = options.contender or [name for name in CONTENDERS if not name.startswith(("Ray", "SMAC", "BOHB"))]
    surrogate = Surrogate(options.data)
    spans = {task: surrogate.span(task) for task in TASKS[: options.tasks]}
    seconds = dict.fromkeys(chosen, 0.0)
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for name in chosen:
            started = time.process_time()
            of_contender = runs.setdefault(name, {})
            for task, (middle, best) in spans.items():
                if (key := f"{task} {seed}") not in of_contender:
                    with tempfile.TemporaryDirectory() as folder:
                        found = bests(CONTENDERS[name](seed, folder), surrogate, task)
                    of_contender[key] = [100 * (best - value) / (best - middle) for value in found]
            seconds[name] += time.process_time() - started
            if options.results:
                options.results.write_text(json.dumps(runs))
    print(f"{'regret in %, by epochs':32}{'  '.join(f'{budget:^11}' for budget in BUDGETS)}")
    for name, of_contender in runs.items():
        took = f", {seconds[name]:.0f} s of a core" if seconds.get(name) else ""
        print(f"{row(name, of_contender)}{took}")


def bests(contender: Contender, surrogate: Surrogate, task: str) -> list[float]:
    """Returns the best accuracy that was reported when each budget was spent. An epoch takes the same time anywhere."""
    found: list[float] = []
    best = 0.0
    trainings: dict[str, Training] = {}
    working: list[tuple[int, int, int, Job]] = []
    """A heap of the epochs to come: when each ends, the number of its job, its epoch, its job."""
    num_jobs = now = 0
    while len(found) < len(BUDGETS):
        while len(working) < NUM_WORKERS and (job := contender.ask()) is not None:
            num_jobs += 1
            heapq.heappush(working, (now + 1, num_jobs, job.trained + 1, job))
        now, number, epoch, job = heapq.heappop(working)
        while len(found) < len(BUDGETS) and now * NUM_WORKERS > BUDGETS[len(found)]:
            found.append(best)
        training = trainings.setdefault(repr(sorted(job.point.items())), Training(surrogate, task, job.point))
        accuracy = training.at(epoch)
        best = max(best, accuracy)
        if contender.report(job, epoch, accuracy) and epoch < NUM_EPOCHS:
            heapq.heappush(working, (now + 1, number, epoch + 1, job))
    return found


def row(name: str, runs: dict[str, list[float]]) -> str:
    """Returns a contender's regrets at the budgets, and how many seeds they come from."""
    by_seed: dict[str, list[list[float]]] = {}
    for key, regrets in runs.items():
        by_seed.setdefault(key.partition(" ")[2], []).append(regrets)
    shown = []
    for index in range(len(BUDGETS)):
        means = [statistics.fmean(regrets[index] for regrets in of_seed) for of_seed in by_seed.values()]
        error = statistics.stdev(means) / len(means) ** 0.5 if len(means) > 1 else 0.0
        shown.append(f"{statistics.fmean(means):5.1f} ± {error:.1f}")
    return f"{name:32}{'  '.join(shown)}   {len(by_seed)} seeds"


if __name__ == "__main__":
    main()
