"""One rank that makes the calls its parent asks for, with either library: it needs nothing besides that one.

python _channel_rank.py core_sdk|determined RANK SIZE PORT

Each line of its input is one turn; its answer is the time and the processor's time of a call, in microseconds.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

ROUND_TRIP = "broadcast and gather"


def main(library: str, rank: int, size: int, port: int) -> None:
    context = join(library, rank, size, port)
    print(json.dumps("joined"), flush=True)
    for line in sys.stdin:
        turn = json.loads(line)
        print(json.dumps(play(context, **turn)), flush=True)
    context.close()


def round_trip_of(context: Any) -> Callable[[Any], None]:
    """Returns a round trip: a broadcast alone would let the chief be far ahead of the readers."""

    def make_both(value: Any) -> None:
        context.broadcast(value)
        context.gather(None)

    return make_both


def join(library: str, rank: int, size: int, port: int) -> Any:
    ports = {"pub_port": port, "pull_port": port + 1}
    core = importlib.import_module(f"{library}.core")
    return core.DistributedContext(
        rank=rank, size=size, local_rank=rank, local_size=size, cross_rank=0, cross_size=1, **ports
    )


def play(context: Any, call: str, num_bytes: int, num_calls: int) -> list[float]:
    value = os.urandom(num_bytes)
    collective = getattr(context, call) if call != ROUND_TRIP else round_trip_of(context)
    context.allgather(None)
    began, began_cpu = time.perf_counter(), time.process_time()
    for _ in range(num_calls):
        collective(value)
    ended, ended_cpu = time.perf_counter(), time.process_time()
    return [(ended - began) / num_calls * 1e6, (ended_cpu - began_cpu) / num_calls * 1e6]


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
