"""What a training function costs: an empty fit, a report, a checkpoint, a failure; beside Ray Train where it is there.

On a Ray cluster, and of Ray Train, it is measured by the python of an environment that has Ray:
`pip install "ray[train]==2.60.0"` for the latter.

python benchmarks/train.py [--way local|ray|ray-train] [--num-runs 3] [--num-kills 0] [--num-many 64]
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

NUM_REPORTS = 1000
NUM_CHECKPOINTS = 30
CHECKPOINT_BYTES = 2048
FIRST_TARGET_S = {"local": 0.5, "ray": 2.5}
NEXT_TARGET_S = {"local": 0.3, "ray": 2.5}
REPORT_TARGET_US = 20.0
CHECKPOINT_TARGET_MS = 30.0
AGAIN_TARGET_S = 3.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--way", choices=["local", "ray", "ray-train"], default="local")
    parser.add_argument("--num-runs", type=int, default=3)
    parser.add_argument("--num-kills", type=int, default=0, help="kill a worker right after a report so often")
    parser.add_argument("--num-many", type=int, default=0, help="start, report and end with so many workers")
    arguments = parser.parse_args()
    os.environ.setdefault("CORE_SDK_HOME", tempfile.mkdtemp(prefix="core-sdk-benchmark-"))
    way = Way(arguments.way)
    torch_s = statistics.median(import_torch_s() for _ in range(arguments.num_runs))
    first_s = way.fit_s(empty)
    next_s = statistics.median(way.fit_s(empty) for _ in range(arguments.num_runs))
    num_reports = 20 if arguments.way == "ray-train" else NUM_REPORTS
    reported = way.fit(lambda: reports(num_reports))
    report_us = reported.return_value * 1e6
    rows = 0 if reported.metrics_dataframe is None else len(reported.metrics_dataframe)
    alone_ms = way.fit(lambda: checkpoints(only_rank_0=True)).return_value * 1e3
    all_ms = way.fit(lambda: checkpoints(only_rank_0=False)).return_value * 1e3
    again_s = statistics.median(way.failure_s() for _ in range(arguments.num_runs))

    first_target_s = {"local": torch_s + FIRST_TARGET_S["local"], "ray": FIRST_TARGET_S["ray"]}.get(arguments.way, 0)
    next_target_s = NEXT_TARGET_S.get(arguments.way, 0)
    print(f"import torch in 2 bare processes at once        {torch_s:9.2f} s")
    print(f"an empty fit() of 2 workers                     {first_s:9.2f} s   (target {first_target_s:.2f})")
    print(f"  ... the next one                              {next_s:9.3f} s   (target {next_target_s})")
    told = f"a report, mean of {num_reports}, of which {rows} are kept"
    print(f"{told:48}{report_us:9.1f} us  (target {REPORT_TARGET_US:g})")
    print(f"  ... with 2 KB of rank 0, median               {alone_ms:9.1f} ms  (target {CHECKPOINT_TARGET_MS:g})")
    print(f"  ... with 2 KB of each rank, median            {all_ms:9.1f} ms  (target {CHECKPOINT_TARGET_MS:g})")
    print(f"an exception to user code again                 {again_s:9.2f} s   (target {AGAIN_TARGET_S:g})")
    if arguments.num_kills:
        num_kept = sum(way.keeps_what_was_reported() for _ in range(arguments.num_kills))
        print(f"killed right after a report, and nothing lost   {num_kept:5d} of {arguments.num_kills}")
    if arguments.num_many:
        many_s = way.fit_s(lambda: reports(1), num_workers=arguments.num_many)
        each_s = many_s / arguments.num_many
        print(
            f"{arguments.num_many} workers: start, report, end                {many_s:9.1f} s   ({each_s:.2f} s each)"
        )
    is_met = first_s <= first_target_s and next_s <= next_target_s and report_us <= REPORT_TARGET_US
    is_met = is_met and max(alone_ms, all_ms) <= CHECKPOINT_TARGET_MS and again_s <= AGAIN_TARGET_S
    print("met" if is_met else "MISSED")
    sys.exit(0 if arguments.way == "ray-train" else not is_met)


class Way:
    """One of the trainers; all have the same names."""

    def __init__(self, way: str) -> None:
        self._options: dict[str, Any] = {} if way == "ray-train" else {"engine": way}
        if way != "local":
            import ray

            begin = time.perf_counter()
            ray.init(num_cpus=4, include_dashboard=False, object_store_memory=200 << 20, logging_level=logging.ERROR)
            print(f"ray.init                                        {time.perf_counter() - begin:9.2f} s")
        os.environ["BENCHMARKED"] = "ray.train" if way == "ray-train" else "core_sdk.train"
        self._train = trainer()
        import importlib

        self._torch = importlib.import_module(f"{self._train.__name__}.torch")

    def fit(self, function: Callable[..., Any], *, num_workers: int = 2, max_failures: int = 0) -> Any:
        scaling = self._train.ScalingConfig(num_workers=num_workers, **self._options)
        failures = self._train.FailureConfig(max_failures=max_failures)
        run = self._train.RunConfig(failure_config=failures)
        name = self._train.__name__

        def told() -> Any:
            os.environ["BENCHMARKED"] = name
            return function()

        return self._torch.TorchTrainer(told, scaling_config=scaling, run_config=run).fit()

    def fit_s(self, function: Callable[..., Any], *, num_workers: int = 2) -> float:
        begin = time.perf_counter()
        self.fit(function, num_workers=num_workers)
        return time.perf_counter() - begin

    def failure_s(self) -> float:
        """From an exception of rank 1 to the function's next begin there."""
        with tempfile.TemporaryDirectory() as directory:
            failed, again = Path(directory, "failed"), Path(directory, "again")

            def function() -> None:
                if rank() == 1:
                    (again if failed.exists() else failed).write_text(str(time.time()))
                    if not again.exists():
                        raise RuntimeError("on purpose")
                trainer().collective.barrier()

            self.fit(function, max_failures=1)
            return float(again.read_text()) - float(failed.read_text())

    def keeps_what_was_reported(self) -> bool:
        """Returns whether a training begins again with the checkpoint of the report after which rank 1 was killed."""

        def function() -> int:
            if trainer().get_checkpoint() is not None:
                with trainer().get_checkpoint().as_directory() as directory:
                    return int(Path(directory, "step").read_text())
            for step in range(3):
                with tempfile.TemporaryDirectory() as directory:
                    Path(directory, "step").write_text(str(step))
                    trainer().report({"step": step}, checkpoint=trainer().Checkpoint.from_directory(directory))
                if step == 2 and rank() == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)
            return -1

        return bool(self.fit(function, max_failures=1).return_value == 2)


def trainer() -> Any:
    """Returns the module with `report()` and its like, also in workers."""
    import importlib

    importlib.import_module(os.environ["BENCHMARKED"] + ".collective")  # Ray Train does not import it by itself
    return importlib.import_module(os.environ["BENCHMARKED"])


def rank() -> int:
    return int(trainer().get_context().get_world_rank())


def empty() -> None:
    return None


def reports(num_reports: int) -> float:
    begin = time.perf_counter()
    for number in range(num_reports):
        trainer().report({"loss": 1.0 / (number + 1), "step": float(number)})
    return (time.perf_counter() - begin) / num_reports


def checkpoints(*, only_rank_0: bool) -> float:
    durations = []
    for number in range(NUM_CHECKPOINTS if trainer().__name__ == "core_sdk.train" else 5):
        with tempfile.TemporaryDirectory() as directory:
            checkpoint = None
            if rank() == 0 or not only_rank_0:
                Path(directory, f"rank{rank()}").write_bytes(os.urandom(CHECKPOINT_BYTES))
                checkpoint = trainer().Checkpoint.from_directory(directory)
            begin = time.perf_counter()
            trainer().report({"step": float(number)}, checkpoint=checkpoint)
            durations.append(time.perf_counter() - begin)
    return statistics.median(durations)


def import_torch_s() -> float:
    """In two processes at once, which share the cores as two workers do."""
    begin = time.perf_counter()
    variables = os.environ | {"OMP_NUM_THREADS": "1"}
    processes = [subprocess.Popen([sys.executable, "-c", "import torch"], env=variables) for _ in range(2)]
    for process in processes:
        process.wait()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
