"""What only workers on Ray can get wrong: their resources, and the nodes on which they are."""

from __future__ import annotations

import importlib.util

import pytest
from execution.workers.engines import RayNode
from execution.workers.programs import Programs
from processes import wait_for

from core_sdk.errors import MissingDependencyError

ON_RAY = pytest.mark.parametrize("programs", ["ray"], indirect=True)


def test_without_ray_the_error_says_what_to_install() -> None:
    """Without Ray, importing its engine raises an error that says what to install."""
    if importlib.util.find_spec("ray") is not None:
        pytest.skip("NOT TESTED: Ray is installed here")

    with pytest.raises(MissingDependencyError, match=r'RayEngine needs ray: pip install "ray'):
        importlib.import_module("core_sdk._execution.workers.ray")


@ON_RAY
def test_workers_for_which_there_is_no_room_are_refused_at_once(programs: Programs) -> None:
    """Workers for which the cluster is too small are refused at once, unless it may grow."""
    programs.run("""
        def expect(text, num_workers, **options):
            try:
                WorkerGroup(num_workers, engine(**options))
            except WorkersNotStartedError as error:
                assert text in str(error), error
            else:
                raise AssertionError

        began_at = time.monotonic()
        expect("they ask for 300 CPU (PACK); the cluster has 8 CPU, of which 8 CPU are free", 3, num_cpus=100)
        expect("it will never have room for them", 2, num_cpus=1, strategy="STRICT_SPREAD")
        expect("they ask for 1 CPU, 2 GPU (PACK); the cluster has 8 CPU, 0 GPU", 1, num_gpus=2)
        assert time.monotonic() - began_at < 30
        expect("it had no place for them within 1 s", 9, is_growing=True, placement_timeout_s=1)
        with WorkerGroup(1, engine()) as workers:
            assert workers.run(rank) == [0]
    """)


@ON_RAY
def test_workers_wait_for_places_that_others_hold(programs: Programs) -> None:
    """Workers wait a limited time for occupied places, and a message says what they wait for."""
    code, _, errors = programs.start("""
        import threading

        first = WorkerGroup(1, engine(num_cpus=8))
        try:
            WorkerGroup(1, engine(num_cpus=8, placement_timeout_s=7))
        except WorkersNotStartedError as error:
            assert "the cluster has 8 CPU, of which 0 CPU are free (nodes: 1): it had no place" in str(error), error
        else:
            raise AssertionError
        threading.Timer(1.0, first.close).start()
        with WorkerGroup(1, engine(num_cpus=8)) as second:
            assert second.run(rank) == [0]
    """).wait()

    assert code == 0, errors
    assert "1 workers wait for places: they ask for 8 CPU" in errors


@ON_RAY
def test_a_cluster_that_cannot_be_used_is_explained(programs: Programs) -> None:
    """A cluster of another version, a missing cluster and an old Ray are explained."""
    programs.run("""
        import ray
        from core_sdk._execution.workers.ray import RayEngine

        def expect(text, make_engine):
            try:
                make_engine()
            except RayClusterError as error:
                assert text in str(error), error
            else:
                raise AssertionError

        version = ray.__version__
        ray.__version__ = "2.59.3"
        expect("ray 2.59.3 is installed here, and Core SDK needs 2.60 or newer", engine)
        ray.__version__ = "2.60.99"
        expect(f"The cluster was started with: Ray: {version} Python", engine)
        expect("was started with: Ray: 2.60.99 Python", engine)
        ray.__version__ = version
        expect("the Ray cluster at 127.0.0.1:9 cannot be used: [Errno 111]", lambda: RayEngine("127.0.0.1:9"))
    """)


@ON_RAY
@pytest.mark.parametrize("moment", ["idle", "in a call"])
def test_workers_are_lost_when_the_program_ends_its_connection(programs: Programs, moment: str) -> None:
    """The error says so, and the program goes on: also a call that has begun before."""
    programs.run(f"""
        import ray

        with WorkerGroup(2, engine()) as workers:
            workers.run(rank)
            call = workers.submit(time.sleep, 600) if {moment!r} == "in a call" else None
            ray.shutdown()
            try:
                (call or workers.submit(rank)).results()
            except WorkerDiedError as error:
                assert "this program has ended its connection to it by ray.shutdown()" in str(error), error
            else:
                raise AssertionError
            try:
                workers.restart()
            except RayClusterError as error:
                assert "by ray.shutdown()" in str(error), error
            else:
                raise AssertionError
        assert not ray.is_initialized()
    """)


@ON_RAY
def test_a_cluster_that_goes_away_is_named(programs: Programs, dying_ray: RayNode) -> None:
    """If the cluster goes away, an error names it long before Ray would."""
    program = programs.start(f"""
        from core_sdk._execution.workers.ray import RayEngine

        def train():
            mark("in call")
            time.sleep(600)

        with WorkerGroup(1, RayEngine({dying_ray.address!r})) as workers:
            try:
                workers.run(train)
            except WorkerDiedError as error:
                assert "was lost with its Ray cluster: it does not answer any more" in str(error), error
            else:
                raise AssertionError
    """)
    wait_for((programs.directory / "in call").exists)

    dying_ray.kill()
    code, _, errors = program.wait()

    assert code == 0, errors


@ON_RAY
def test_workers_hold_their_resources_from_start_to_end(programs: Programs) -> None:
    """Workers hold their resources until they end, and `num_available()` includes the engine's own."""
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
    """If Ray kills an actor, its worker counts as dead and is named."""
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
    """Workers are spread over nodes with consecutive ranks on each."""
    programs.run(f"""
        def meet():
            import torch, torch.distributed as dist
            from core_sdk.core import DistributedContext
            total = torch.ones(1)
            dist.all_reduce(total)
            with DistributedContext.from_torch_distributed() as distributed:
                return total.item(), distributed.allgather((distributed.rank, distributed.cross_rank))

        from core_sdk._execution.workers.ray import RayEngine

        with WorkerGroup(4, RayEngine({two_ray_nodes!r}, strategy="SPREAD")) as workers:
            nodes = [(place.cross_rank, place.local_rank, place.local_size) for place in workers.places]
            assert nodes == [(0, 0, 2), (0, 1, 2), (1, 0, 2), (1, 1, 2)], nodes
            workers.init_torch()
            assert workers.run(meet) == [(4.0, [(0, 0), (1, 0), (2, 1), (3, 1)])] * 4
    """)
