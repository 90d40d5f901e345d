"""What `should_preempt()` costs on several ranks, how soon they agree on a stop, and how soon a frozen rank is named.

python benchmarks/stop.py [--ranks 4] [--num-calls 200000]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from core_sdk import core
from core_sdk.errors import ChannelError

TIMEOUT_S = 1.0
NUM_STOPS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--num-calls", type=int, default=200_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["CORE_SDK_HOME"] = home
        measure(arguments.ranks, arguments.num_calls)


def measure(num_ranks: int, num_calls: int) -> None:
    costs_us = on_all_ranks(time_calls, num_ranks, num_calls)
    print(f"should_preempt() on {num_ranks} ranks   slowest rank {max(costs_us):.2f} µs (target <= 1)")
    lags = [max(on_all_ranks(calls_until_stop, num_ranks, turn)) for turn in range(NUM_STOPS)]
    print(f"from a SIGTERM on one rank to the stop of all: at most {max(lags)} calls (target <= 2)")
    times_s = on_all_ranks(time_naming, num_ranks, 0)
    late_s = statistics.median(time_s - TIMEOUT_S for time_s in times_s if time_s)
    print(f"a frozen rank is named {late_s:.2f} s after the time-out of {TIMEOUT_S:g} s")


def on_all_ranks(work: Callable[[Any, int], float], num_ranks: int, argument: int) -> list[float]:
    """Returns what `work` gives on each rank; 0 from one that is frozen."""
    spawn = multiprocessing.get_context("spawn")
    pipes = [spawn.Pipe(duplex=False) for _ in range(num_ranks)]
    processes = [
        spawn.Process(target=run_rank, args=(work, rank, num_ranks, argument, pipes[rank][1]))
        for rank in range(num_ranks)
    ]
    for process in processes:
        process.start()
    frozen = num_ranks - 1 if work is time_naming else None
    results = [0.0 if rank == frozen else pipe[0].recv() for rank, pipe in enumerate(pipes)]
    for process in processes:
        process.kill()
        process.join()
    return results


def run_rank(work: Callable[[Any, int], float], rank: int, size: int, argument: int, answer: Connection) -> None:
    distributed = core.DistributedContext(
        rank=rank,
        size=size,
        local_rank=rank,
        local_size=size,
        cross_rank=0,
        cross_size=1,
        timeout_s=TIMEOUT_S if work is time_naming else 60,
    )
    with core.init(distributed=distributed) as context:
        answer.send(work(context, argument))


def time_calls(context: core.Context, num_calls: int) -> float:
    """Returns the median duration of 20 turns, in µs."""
    turns = []
    for _ in range(20):
        begin = time.perf_counter()
        for _ in range(num_calls // 20):
            context.preempt.should_preempt()
        turns.append((time.perf_counter() - begin) / (num_calls // 20) * 1e6)
    return statistics.median(turns)


def calls_until_stop(context: core.Context, turn: int) -> float:
    """Counted on the rank that is signalled, from the call after the signal; 0 on the others."""
    is_signalled = context.distributed.rank == turn % context.distributed.size
    call = signalled_after = 0
    while not context.preempt.should_preempt():
        call += 1
        context.distributed.allgather(None)  # stands for the training's own collectives
        if is_signalled and call == 20:
            signalled_after = call
            signal.raise_signal(signal.SIGTERM)
    return call + 1 - signalled_after if is_signalled else 0


def time_naming(context: core.Context, _: int) -> float:
    """Seconds from the call that waits for a frozen rank to the error that names it."""
    distributed = context.distributed
    distributed.allgather(None)
    if distributed.rank == distributed.size - 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    begin = time.perf_counter()
    try:
        distributed.allgather(None)
    except ChannelError as error:
        if f"rank {distributed.size - 1}" not in str(error):
            raise
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
