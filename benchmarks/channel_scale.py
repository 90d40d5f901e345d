"""Measures how the cost of the ranks' calls grows with their number, and with the size of the objects.

python benchmarks/channel_scale.py [--ranks 2,4,8,16,32,64] [--nodes 16x4] [--gloo-up-to 8] [--quick]

Ranks are processes of this machine. On fewer cores than ranks they take turns, as no training would have it: then a
figure says how much work there is in all. A figure is the time per call on the slowest rank, the median over turns.
Nodes are groups of ranks that speak over loopback TCP.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import secrets
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Barrier
from typing import NamedTuple

from channel import free_port, gloo_collectives

from core_sdk import core

Collective = Callable[[object], object]

_LOOPBACK = "127.0.0.1"
_SMALL = {"64 B": 64, "64 KiB": 1 << 16}
_LARGE = {f"{kib:,} KiB": kib << 10 for kib in (64, 128, 256, 512, 1024, 32 * 1024)}
_LARGE_RANKS = 4


class Job(NamedTuple):
    """What all ranks of a group do."""

    num_nodes: int
    size: int
    port: int
    has_gloo: bool
    is_large: bool
    num_turns: int
    barrier: Barrier

    @property
    def name(self) -> str:
        per_node = self.size // self.num_nodes
        return f"{self.num_nodes} x {per_node}" if self.num_nodes > 1 else f"{self.size}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4,8,16,32,64", help="sizes of the group on one node, or nothing")
    parser.add_argument("--nodes", default="16x4", help="nodes and ranks of each, or nothing")
    parser.add_argument("--gloo-up-to", type=int, default=8, help="the largest group that is compared with gloo")
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    arguments = parser.parse_args()
    num_turns = 3 if arguments.quick else 7
    print(f"{os.cpu_count()} cores")
    print(f"{'ranks':>7}  {'call':<16}  {'payload':<10}  {'ours':>12}  {'gloo':>12}  ratio")
    for size in map(int, filter(None, arguments.ranks.split(","))):
        run_ranks(1, size, num_turns, has_gloo=size <= arguments.gloo_up_to)
    if arguments.nodes:
        num_nodes, per_node = map(int, arguments.nodes.split("x"))
        run_ranks(num_nodes, num_nodes * per_node, num_turns)
    run_ranks(1, _LARGE_RANKS, num_turns, is_large=True)


def run_ranks(
    num_nodes: int,
    size: int,
    num_turns: int,
    *,
    has_gloo: bool = False,
    is_large: bool = False,
) -> None:
    if has_gloo or is_large:
        import torch

        torch.set_num_threads(1)
    # Forked: 64 interpreters that start would take their time.
    fork = multiprocessing.get_context("fork")
    job = Job(num_nodes, size, free_port(), has_gloo, is_large, num_turns, fork.Barrier(size))
    os.environ["CORE_SDK_CHANNEL_KEY"] = secrets.token_hex(32)
    with tempfile.TemporaryDirectory() as home:
        os.environ["CORE_SDK_HOME"] = home
        ranks = [fork.Process(target=run_rank, args=(rank, job), daemon=True) for rank in range(size)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
    if any(process.exitcode for process in ranks):
        raise SystemExit(f"ranks ended with {[process.exitcode for process in ranks]}")


def run_rank(rank: int, job: Job) -> None:
    random.seed(rank)
    job.barrier.wait()
    began = time.perf_counter()
    with joined(rank, job) as distributed:
        join_s = max(distributed.allgather(time.perf_counter() - began))
        if job.is_large:
            compare(distributed, job, _LARGE, calls_per_turn=5)
            return
        report(distributed, job, "joining", "", join_s * 1e6, None)
        compare(distributed, job, _SMALL, calls_per_turn=20 if job.size <= 16 else 5)
        with core.init(distributed=distributed) as context:
            time_stop_flag(context, distributed, job)


def joined(rank: int, job: Job) -> core.DistributedContext:
    per_node = job.size // job.num_nodes
    return core.DistributedContext(
        rank=rank,
        size=job.size,
        local_rank=rank % per_node,
        local_size=per_node,
        cross_rank=rank // per_node,
        cross_size=job.num_nodes,
        pub_port=job.port,
        rendezvous=f"tcp://{_LOOPBACK}:{job.port}" if job.num_nodes > 1 else None,
    )


def compare(distributed: core.DistributedContext, job: Job, sizes: dict[str, int], calls_per_turn: int) -> None:
    ours: dict[str, Collective] = {
        "allgather": distributed.allgather,
        "broadcast": distributed.broadcast,
        "gather": distributed.gather,
    }
    with gloo_group(distributed, job) as gloo:
        for payload, num_bytes in sizes.items():
            value = random.randbytes(num_bytes)
            for name, collective in ours.items():
                cost_us = measure(distributed, job, collective, value, calls_per_turn)
                gloo_us = measure(distributed, job, gloo[name], value, calls_per_turn) if name in gloo else None
                report(distributed, job, name, payload, cost_us, gloo_us)


@contextlib.contextmanager
def gloo_group(distributed: core.DistributedContext, job: Job) -> Iterator[dict[str, Collective]]:
    """Gloo's collectives, if they are wanted."""
    if not (job.has_gloo or job.is_large):
        yield {}
        return
    from torch import distributed as gloo

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    port = distributed.broadcast(free_port())
    gloo.init_process_group(
        "gloo", init_method=f"tcp://{_LOOPBACK}:{port}", rank=distributed.rank, world_size=distributed.size
    )
    yield gloo_collectives(distributed.rank, distributed.size)
    gloo.destroy_process_group()


def measure(
    distributed: core.DistributedContext, job: Job, collective: Collective, value: object, calls_per_turn: int
) -> float:
    """Microseconds per call on the slowest rank."""
    collective(value)
    turns = []
    for _ in range(job.num_turns):
        distributed.allgather(None)
        begin = time.perf_counter()
        for _ in range(calls_per_turn):
            collective(value)
        turns.append(max(distributed.allgather((time.perf_counter() - begin) / calls_per_turn)))
    return statistics.median(turns) * 1e6


def time_stop_flag(context: core.Context, distributed: core.DistributedContext, job: Job) -> None:
    """Before a stop was asked for."""
    num_calls = 20_000
    context.preempt.should_preempt()
    distributed.allgather(None)
    # Of the processor: on fewer cores than ranks the rest is waiting for a turn.
    begin = time.thread_time()
    for _ in range(num_calls):
        context.preempt.should_preempt()
    cost_us = max(distributed.allgather((time.thread_time() - begin) / num_calls * 1e6))
    if distributed.is_chief:
        print(f"{job.name:>7}  {'should_preempt()':<16}  {'':<10}  {cost_us:9,.2f} µs", flush=True)


def report(
    distributed: core.DistributedContext, job: Job, name: str, payload: str, cost_us: float, gloo_us: float | None
) -> None:
    if distributed.is_chief:
        compared = f"{gloo_us:9,.0f} µs  {gloo_us / cost_us:5.1f}" if gloo_us else ""
        print(f"{job.name:>7}  {name:<16}  {payload:<10}  {cost_us:9,.0f} µs  {compared}".rstrip(), flush=True)


if __name__ == "__main__":
    main()
