"""What worker groups cost: a start, a call, a failure and the way back from it, large values, and many workers.

The figures of Ray are measured by the python of an environment that has Ray, such as `.venv/ray/bin/python`.

python benchmarks/workers.py [--engine ray] [--num-runs 5]
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from core_sdk._execution.workers import Engine, LocalEngine, WorkerGroup, this_worker
from core_sdk.errors import WorkerDiedError

NUM_CALLS = 1000
NUM_MANY = 64
NUM_BYTES = 100 << 20
START_TARGET_S = {"local": 0.5, "ray": 1.5}
CALL_TARGET_S = 0.001
KEPT_TARGET_S = 0.1
AGAIN_TARGET_S = 3.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=["local", "ray"], default="local")
    parser.add_argument("--num-runs", type=int, default=5)
    arguments = parser.parse_args()
    engine = make_ray_engine if arguments.engine == "ray" else LocalEngine
    start_ray(arguments.engine)

    torch_s = median_of(arguments.num_runs, import_torch_s)
    bare_s = median_of(arguments.num_runs, lambda: group_s(engine, import_nothing))
    start_s = median_of(arguments.num_runs, lambda: group_s(engine, import_torch))
    joined_s = median_of(arguments.num_runs, lambda: group_s(engine, import_torch, is_joined=True))
    failures = [failure_s(engine) for _ in range(arguments.num_runs)]
    died_s, again_s = (statistics.median(column) for column in zip(*failures, strict=True))
    call_s, kept_s, large_s = kept_workers_s(engine)

    target_s = torch_s + START_TARGET_S[arguments.engine]
    is_met = [start_s <= target_s, call_s < CALL_TARGET_S, kept_s <= KEPT_TARGET_S, again_s <= AGAIN_TARGET_S]
    print(f"import torch in 2 bare processes at once          {torch_s:7.2f} s")
    print(f"2 workers: start, an empty call, end              {bare_s:7.2f} s")
    print(f"  ... that import torch                           {start_s:7.2f} s    (target {target_s:.2f})")
    print(f"  ... and join torch.distributed                  {joined_s:7.2f} s")
    print(f"an empty call on kept workers, mean of {NUM_CALLS}       {call_s * 1000:7.2f} ms   (target < 1)")
    print(f"a new function with an all_reduce on kept workers {kept_s:7.2f} s    (target {KEPT_TARGET_S})")
    print(f"kill -9 of a worker to its error in the program   {died_s:7.2f} s")
    print(f"  ... to user code again, torch.distributed joined{again_s:7.2f} s    (target {AGAIN_TARGET_S})")
    print(f"{NUM_BYTES >> 20} MiB to 2 workers and back                   {large_s:7.2f} s")
    if arguments.engine == "local":
        many_s = many_workers_s()
        print(f"{NUM_MANY} workers: start, an empty call, end             {many_s:7.2f} s")
        print(f"  ... each                                        {many_s / NUM_MANY:7.3f} s")
    print("met" if all(is_met) else "MISSED")
    sys.exit(not all(is_met))


def start_ray(engine: str) -> None:
    if engine == "ray":
        import ray

        begin = time.perf_counter()
        ray.init(num_cpus=4, include_dashboard=False, object_store_memory=1 << 30, logging_level=logging.WARNING)
        print(f"ray.init                                          {time.perf_counter() - begin:7.2f} s")


def make_ray_engine() -> Engine:
    from core_sdk._execution.workers.ray import RayEngine

    return RayEngine()


def median_of(num_runs: int, measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(num_runs))


def import_torch_s() -> float:
    """In two processes at once, which share the cores as two workers do."""
    begin = time.perf_counter()
    variables = os.environ | {"OMP_NUM_THREADS": "1"}
    processes = [subprocess.Popen([sys.executable, "-c", "import torch"], env=variables) for _ in range(2)]
    for process in processes:
        process.wait()
    return time.perf_counter() - begin


def import_nothing() -> None:
    return None


def import_torch() -> None:
    import torch  # noqa: F401 - what is measured


def group_s(engine: Callable[[], Engine], function: Callable[[], None], *, is_joined: bool = False) -> float:
    begin = time.perf_counter()
    with WorkerGroup(2, engine()) as workers:
        if is_joined:
            workers.init_torch()
        workers.run(function)
    return time.perf_counter() - begin


def die() -> None:
    if this_worker().rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


def failure_s(engine: Callable[[], Engine]) -> tuple[float, float]:
    """From the call in which a worker dies to the error, and until the workers have run user code again."""
    with WorkerGroup(2, engine()) as workers:
        workers.init_torch()
        begin = time.perf_counter()
        try:
            workers.run(die)
        except WorkerDiedError:
            died_s = time.perf_counter() - begin
        workers.restart()
        workers.init_torch()
        workers.run(all_reduce)
        return died_s, time.perf_counter() - begin


def all_reduce() -> float:
    import torch
    import torch.distributed as dist

    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    return tensor.item()


def kept_workers_s(engine: Callable[[], Engine]) -> tuple[float, float, float]:
    with WorkerGroup(2, engine()) as workers:
        workers.init_torch()
        workers.run(all_reduce)
        begin = time.perf_counter()
        for _ in range(NUM_CALLS):
            workers.run(import_nothing)
        call_s = (time.perf_counter() - begin) / NUM_CALLS
        begin = time.perf_counter()
        workers.run(lambda: all_reduce())
        kept_s = time.perf_counter() - begin
        data = os.urandom(NUM_BYTES)
        begin = time.perf_counter()
        workers.run(lambda data: data, data)
        return call_s, kept_s, time.perf_counter() - begin


def many_workers_s() -> float:
    begin = time.perf_counter()
    with WorkerGroup(NUM_MANY) as workers:
        workers.run(import_nothing)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
