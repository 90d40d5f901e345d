"""What a collective of small objects costs, against gloo's object collectives in the same processes and run.

python benchmarks/channel.py [--ranks 2,4,8] [--quick]

A figure is the time per call on the slowest rank, the median over turns that alternate between the two.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import socket
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

from core_sdk.core import DistributedContext

Collective = Callable[[object], object]

_LOOPBACK = "127.0.0.1"


class Payload(NamedTuple):
    name: str
    value: object
    calls_per_turn: int


class Figures(NamedTuple):
    ours_us: float
    gloo_us: float


TARGETS = {
    ("allgather", "64 B", 4): 20.0,
    ("allgather", "1 MiB", 4): 1.0,
    ("allgather", "3,000 keys", 8): 2.0,
}


def payloads() -> list[Payload]:
    return [
        Payload("64 B", random.randbytes(64), 50),
        Payload("10 keys", {f"metric_{key}": random.random() for key in range(10)}, 50),
        Payload("3,000 keys", {f"metric_{key}": random.random() for key in range(3_000)}, 10),
        Payload("1 MiB", random.randbytes(1 << 20), 10),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4,8", help="sizes of the group")
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    arguments = parser.parse_args()
    print(f"{'ranks':>5}  {'call':<9}  {'payload':<10}  {'ours':>11}  {'gloo':>11}  ratio   target", flush=True)
    for size in map(int, arguments.ranks.split(",")):
        run_ranks(size, num_turns=3 if arguments.quick else 11)


def run_ranks(size: int, num_turns: int) -> None:
    # One group after the other, each of processes of its own.
    processes = multiprocessing.get_context("spawn")
    port = free_port()
    ranks = [processes.Process(target=compare, args=(rank, size, port, num_turns), daemon=True) for rank in range(size)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    if any(process.exitcode for process in ranks):
        raise SystemExit(f"ranks ended with {[process.exitcode for process in ranks]}")


def free_port() -> int:
    with socket.create_server((_LOOPBACK, 0)) as server:
        return int(server.getsockname()[1])


def compare(rank: int, size: int, port: int, num_turns: int) -> None:
    """One rank; the first one prints."""
    import torch
    from torch import distributed

    # As torchrun does it: gloo would suffer from more threads than cores.
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    distributed.init_process_group("gloo", init_method=f"tcp://{_LOOPBACK}:{port}", rank=rank, world_size=size)
    context = DistributedContext(
        rank=rank, size=size, local_rank=rank, local_size=size, cross_rank=0, cross_size=1, pub_port=port
    )
    ours: dict[str, Collective] = {
        "allgather": context.allgather,
        "broadcast": context.broadcast,
        "gather": context.gather,
    }
    random.seed(rank)
    for payload in payloads():
        for name, gloo in gloo_collectives(rank, size).items():
            figures = measure(context, ours[name], gloo, payload, num_turns)
            if rank == 0:
                print(row(size, name, payload.name, figures), flush=True)
    context.close()
    distributed.destroy_process_group()


def gloo_collectives(rank: int, size: int) -> dict[str, Collective]:
    from torch import distributed

    def allgather(value: object) -> list[object]:
        values: list[object] = [None] * size
        distributed.all_gather_object(values, value)
        return values

    def broadcast(value: object) -> object:
        values = [value if rank == 0 else None]
        distributed.broadcast_object_list(values, src=0)
        return values[0]

    def gather(value: object) -> list[object] | None:
        values: list[object] | None = [None] * size if rank == 0 else None
        distributed.gather_object(value, values, dst=0)
        return values

    return {"allgather": allgather, "broadcast": broadcast, "gather": gather}


def measure(
    context: DistributedContext, ours: Collective, gloo: Collective, payload: Payload, num_turns: int
) -> Figures:
    if ours(payload.value) != gloo(payload.value):
        raise SystemExit("the two do not agree on the result")
    turns = []
    # In turns, so that a noisy neighbour disturbs both alike.
    for _ in range(num_turns):
        durations = time_calls(context, ours, payload), time_calls(context, gloo, payload)
        turns.append([max(times) for times in zip(*context.allgather(durations), strict=True)])
    return Figures(*(statistics.median(times) for times in zip(*turns, strict=True)))


def time_calls(context: DistributedContext, collective: Collective, payload: Payload) -> float:
    """Microseconds per call on this rank, from a common start."""
    context.allgather(None)
    begin = time.perf_counter()
    for _ in range(payload.calls_per_turn):
        collective(payload.value)
    return (time.perf_counter() - begin) / payload.calls_per_turn * 1e6


def row(size: int, name: str, payload: str, figures: Figures) -> str:
    target = TARGETS.get((name, payload, size))
    wanted = f"{target:4.0f}" if target else ""
    times = f"{figures.ours_us:8,.0f} µs  {figures.gloo_us:8,.0f} µs"
    return f"{size:>5}  {name:<9}  {payload:<10}  {times}  {figures.gloo_us / figures.ours_us:5.1f}   {wanted}".rstrip()


if __name__ == "__main__":
    main()
