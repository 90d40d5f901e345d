"""What only workers on Ray can get wrong: their resources, and the nodes on which they are."""

from __future__ import annotations

import importlib.util

import pytest
from workers.programs import Programs

from core_sdk.errors import MissingDependencyError

ON_RAY = pytest.mark.parametrize("programs", ["ray"], indirect=True)


def test_without_ray_the_error_says_what_to_install() -> None:
    """The engine is imported only by who wants it."""
    if importlib.util.find_spec("ray") is not None:
        pytest.skip("NOT TESTED: Ray is installed here")

    with pytest.raises(MissingDependencyError, match=r'RayEngine needs ray: pip install "core-sdk\[ray\]"'):
        importlib.import_module("core_sdk.workers.ray")


@ON_RAY
def test_workers_that_find_no_place_are_not_waited_for_for_ever(programs: Programs) -> None:
    """The error says what they ask for and what there is; nothing of them is left."""
    programs.run("""
        try:
            WorkerGroup(3, engine(num_cpus=100, placement_timeout_s=1))
        except WorkersNotStartedError as error:
            assert "they ask for 300 CPU; the cluster has 8 CPU, of which 8 CPU are free" in str(error), error
        else:
            raise AssertionError
        with WorkerGroup(1, engine()) as workers:
            assert workers.run(rank) == [0]
    """)


@ON_RAY
def test_workers_hold_their_resources_from_start_to_end(programs: Programs) -> None:
    """`num_available()` counts the engine's own as available, since they end before others start."""
    programs.run("""
        import ray

        def wait_for_free(number):
            deadline = time.monotonic() + 30
            while ray.available_resources().get("CPU", 0) != number:
                assert time.monotonic() < deadline
                time.sleep(0.05)

        mine = engine(num_cpus=2)
        assert mine.num_available() == 4
        with WorkerGroup(3, mine) as workers:
            wait_for_free(2)
            assert mine.num_available() == 4
            assert engine(num_cpus=2).num_available() == 1
            workers.restart(4)
            wait_for_free(0)
        wait_for_free(8)
    """)


@ON_RAY
def test_a_dead_actor_is_a_dead_worker(programs: Programs) -> None:
    """When Ray kills an actor, or its node goes away, its worker ends and is named."""
    programs.run("""
        def kill_actor():
            if rank() == 1:
                os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(600)

        with WorkerGroup(2, engine()) as workers:
            pids = workers.run(os.getpid)
            try:
                workers.run(kill_actor)
            except WorkerDiedError as error:
                assert error.rank == 1 and "was lost with its Ray actor" in error.cause, error
            else:
                raise AssertionError
            deadline = time.monotonic() + 30
            while any(os.path.exists(f"/proc/{pid}") for pid in pids):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            workers.restart()
            assert workers.run(rank) == [0, 1]
    """)


@ON_RAY
def test_workers_are_spread_over_nodes(programs: Programs, two_ray_nodes: str) -> None:
    """Ranks of one node follow each other; they meet through torch's store."""
    programs.run(f"""
        def meet():
            import torch, torch.distributed as dist
            from core_sdk.core import DistributedContext
            total = torch.ones(1)
            dist.all_reduce(total)
            with DistributedContext.from_torch_distributed() as distributed:
                return total.item(), distributed.allgather((distributed.rank, distributed.cross_rank))

        from core_sdk.workers.ray import RayEngine

        with WorkerGroup(4, RayEngine({two_ray_nodes!r}, strategy="SPREAD")) as workers:
            nodes = [(place.cross_rank, place.local_rank, place.local_size) for place in workers.places]
            assert nodes == [(0, 0, 2), (0, 1, 2), (1, 0, 2), (1, 1, 2)], nodes
            workers.init_torch()
            assert workers.run(meet) == [(4.0, [(0, 0), (1, 0), (2, 1), (3, 1)])] * 4
    """)
