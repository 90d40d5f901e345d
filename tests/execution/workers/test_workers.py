"""What every engine promises of its workers."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from execution.workers.engines import programs_on
from execution.workers.programs import Programs
from processes import is_living, wait_for
from promises import promise


@pytest.fixture(params=["local", "forked", "ray"])
def programs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Programs]:
    """Programs whose workers are executed, forked or started by an actor."""
    yield from programs_on(request, tmp_path)


def test_results_come_in_the_order_of_the_ranks(programs: Programs) -> None:
    """Results come in the order of the ranks, whichever worker finishes first."""
    programs.run("""
        def late(first):
            time.sleep(0.3 if rank() == 0 else 0)
            return first + rank()

        with WorkerGroup(3, engine()) as workers:
            assert workers.run(late, 10) == [10, 11, 12]
            assert workers.size == 3
    """)


def test_values_can_be_taken_as_workers_finish(programs: Programs) -> None:
    """Results can be taken in the order in which workers finish."""
    programs.run("""
        def late():
            wait_for(lambda: rank() == 1 or is_marked("go on"))
            return rank() * 10

        with WorkerGroup(2, engine()) as workers:
            call = workers.submit(late)
            assert call.next() == (1, 10)
            assert not call.is_done()
            mark("go on")
            assert list(call) == [(0, 0)]
            assert call.is_done()
            assert call.results() == [0, 10]
    """)


def test_calls_run_one_after_another_in_the_main_thread_and_share_a_state(programs: Programs) -> None:
    """Calls of a worker run one after another in its main thread and share a state."""
    programs.run("""
        import threading

        def append(number):
            assert threading.current_thread() is threading.main_thread()
            time.sleep(0.2 if number == 0 else 0)
            this_worker().state.setdefault("numbers", []).append(number)
            return list(this_worker().state["numbers"])

        with WorkerGroup(2, engine()) as workers:
            calls = [workers.submit(append, number) for number in range(3)]
            assert calls[2].results() == [[0, 1, 2]] * 2
            assert workers.submit_to([1], append, 3).results() == [[0, 1, 2, 3]]
    """)


def test_a_thread_of_a_worker_answers_beside_its_call(programs: Programs) -> None:
    """Values and exceptions come back while the main thread is busy, and a death ends both calls."""
    programs.run("""
        def busy():
            wait_for(lambda: is_marked("go on"))
            return rank()

        def beside(number):
            this_worker().state["number"] = number
            return b"x" * number

        with WorkerGroup(2, engine()) as workers:
            call = workers.submit(busy)
            assert len(workers.call_in_thread(0, beside, 3_000_000)) == 3_000_000
            try:
                workers.call_in_thread(1, divmod, 1, 0)
            except WorkerFailedError as error:
                assert error.rank == 1 and isinstance(error.__cause__, ZeroDivisionError)
            else:
                raise AssertionError
            mark("go on")
            assert call.results() == [0, 1]
            assert workers.run(lambda: this_worker().state.get("number")) == [3_000_000, None]
            waiting = workers.submit(time.sleep, 600)
            for attempt in range(2):
                try:
                    workers.call_in_thread(0, os._exit, 1)
                except WorkerDiedError as error:
                    assert error.rank == 0
                else:
                    raise AssertionError
            try:
                waiting.results()
            except WorkerDiedError as error:
                assert error.rank == 0
            else:
                raise AssertionError
    """)


def test_each_worker_has_what_torchrun_would_tell_it(programs: Programs) -> None:
    """Each worker finds its place in torchrun's variables and in `this_worker()`."""
    programs.run("""
        def numbers():
            place = this_worker().place
            names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
            return [int(os.environ[name]) for name in names], place.rank, place.size

        with WorkerGroup(2, engine()) as workers:
            assert workers.run(numbers) == [([0, 2, 0, 2, 0, 1], 0, 2), ([1, 2, 1, 2, 0, 1], 1, 2)]
            assert [place.rank for place in workers.places] == [0, 1]
    """)


def test_an_exception_arrives_with_its_traceback_and_leaves_the_workers(programs: Programs) -> None:
    """An exception raises WorkerFailedError with its cause, and the workers stay usable."""
    programs.run("""
        def divide(number):
            if rank() == 1:
                return number / 0
            time.sleep(60)

        with WorkerGroup(2, engine()) as workers:
            began_at = time.monotonic()
            try:
                workers.run(divide, 1)
            except WorkerFailedError as error:
                assert error.rank == 1
                assert isinstance(error.__cause__, ZeroDivisionError)
                assert "return number / 0" in error.traceback_text, error.traceback_text
                assert "_program.py" not in error.traceback_text, error.traceback_text
                assert "divide() failed on worker 1: ZeroDivisionError: division by zero" in str(error)
            else:
                raise AssertionError
            assert time.monotonic() - began_at < 30  # the other worker is not waited for
            assert workers.submit_to([1], rank).results() == [1]
    """)


def test_an_exception_that_cannot_be_pickled_arrives_as_text(programs: Programs) -> None:
    """An exception that cannot be pickled arrives as text."""
    programs.run("""
        import threading

        class Locked(Exception):
            def __init__(self):
                super().__init__("locked")
                self.lock = threading.Lock()

        class Peculiar(Exception):
            def __init__(self, first, second):
                super().__init__(f"{first} and {second}")

        def fail():
            raise Locked() if rank() == 0 else Peculiar(1, 2)

        with WorkerGroup(2, engine()) as workers:
            for number, text in enumerate(["Locked: locked", "Peculiar: 1 and 2"]):
                try:
                    workers.submit_to([number], fail).results()
                except WorkerFailedError as error:
                    assert error.__cause__ is None
                    assert text in str(error) and "raise Locked()" in error.traceback_text
                else:
                    raise AssertionError
    """)


def test_sys_exit_in_a_call_ends_the_call_only(programs: Programs) -> None:
    """sys.exit() in a call fails the call and does not end the worker."""
    programs.run("""
        with WorkerGroup(2, engine()) as workers:
            try:
                workers.run(sys.exit, 3)
            except WorkerFailedError as error:
                assert isinstance(error.__cause__, SystemExit)
            assert workers.run(rank) == [0, 1]
    """)


def test_a_killed_worker_is_named_and_ends_the_others(programs: Programs) -> None:
    """If a worker is killed, an error names it and the others are ended."""
    programs.run("""
        def die():
            if rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)

        def is_alive(pid):
            try:
                return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"
            except FileNotFoundError:
                return False

        with WorkerGroup(3, engine()) as workers:
            pids = workers.run(os.getpid)
            began_at = time.monotonic()
            try:
                workers.run(die)
            except WorkerDiedError as error:
                assert error.rank == 1
                assert "worker 1 (" in str(error) and "SIGKILL" in error.cause, error
            else:
                raise AssertionError
            assert time.monotonic() - began_at < 20
            try:
                workers.run(rank)
            except WorkerDiedError as error:
                assert error.rank == 1
            deadline = time.monotonic() + 30
            while any(map(is_alive, pids)):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            workers.restart()
            assert workers.run(rank) == [0, 1, 2]
    """)


def test_a_worker_that_exits_well_in_a_call_has_died(programs: Programs) -> None:
    """A worker that calls os._exit(0) in a call counts as dead."""
    programs.run("""
        with WorkerGroup(2, engine()) as workers:
            try:
                workers.run(os._exit, 0)
            except WorkerDiedError as error:
                print(error)
            else:
                raise AssertionError
    """)


def test_the_root_cause_is_raised_rather_than_its_consequences(programs: Programs) -> None:
    """The ranks that lose their peer in a collective fail sooner than the death of that peer may be seen."""
    programs.run("""
        def train():
            import torch, torch.distributed as dist
            dist.all_reduce(torch.ones(1))
            if rank() == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            dist.all_reduce(torch.ones(1))

        with WorkerGroup(3, engine()) as workers:
            workers.init_torch()
            try:
                workers.run(train)
            except WorkerDiedError as error:
                assert error.rank == 2, error
            else:
                raise AssertionError
    """)


def test_an_exception_before_a_collective_does_not_wait_for_the_others(programs: Programs) -> None:
    """An exception on one worker is raised while others wait in a collective."""
    programs.run("""
        def train():
            import torch, torch.distributed as dist
            if rank() == 1:
                raise ValueError("no data")
            dist.all_reduce(torch.ones(1))

        with WorkerGroup(2, engine()) as workers:
            workers.init_torch()
            try:
                workers.run(train)
            except WorkerFailedError as error:
                assert error.rank == 1 and isinstance(error.__cause__, ValueError)
            workers.restart(1)
            assert workers.run(rank) == [0]
    """)


def test_workers_start_again_with_fewer_and_with_more(programs: Programs) -> None:
    """restart() starts new workers, fewer or more than before."""
    programs.run("""
        def numbers():
            return rank(), this_worker().size, os.environ["WORLD_SIZE"], dict(this_worker().state)

        with WorkerGroup(3, engine()) as workers:
            pids = set(workers.run(os.getpid))
            workers.restart(2)
            assert workers.run(numbers) == [(0, 2, "2", {}), (1, 2, "2", {})]
            assert not pids & set(workers.run(os.getpid))
            workers.restart(4)
            assert workers.run(numbers) == [(each, 4, "4", {}) for each in range(4)]
    """)


def test_restart_does_not_wait_for_workers_that_ignore_a_stop(programs: Programs) -> None:
    """restart() does not wait for workers that ignore SIGTERM."""
    programs.run("""
        def train():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(600)

        def ignore():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

        with WorkerGroup(2, engine()) as workers:
            workers.submit(ignore)
            try:
                workers.run(train)
            except WorkerDiedError as error:
                assert error.rank == 1, error
            time.sleep(2.5)
            workers.restart()
            assert workers.run(rank) == [0, 1]
    """)


def test_functions_and_classes_of_a_program_that_is_no_file_work(programs: Programs) -> None:
    """Functions and classes of a program without a file, as in a notebook, work in workers."""
    programs.run(
        """
        FACTOR = 3

        class Model:
            def __init__(self, size):
                self.size = size

            def grown(self):
                return Model(self.size * FACTOR)

        def grow(model):
            assert isinstance(model, Model)
            return model.grown()

        with WorkerGroup(2, engine()) as workers:
            first, second = workers.run(grow, Model(2))
            assert type(first) is Model and first.size == second.size == 6
            FACTOR = 5
            assert workers.run(lambda: FACTOR) == [5, 5]
        """,
        is_piped=True,
    )


def test_modules_beside_the_script_are_found(programs: Programs) -> None:
    """Workers have the program's search path for modules."""
    (programs.directory / "own_module.py").write_text("def answer():\n    return 42\n")

    programs.run("""
        import own_module

        with WorkerGroup(2, engine()) as workers:
            assert workers.run(own_module.answer) == [42, 42]
    """)


def test_large_values_travel_both_ways(programs: Programs) -> None:
    """100 MB as an argument and as a result, also while the worker is busy with a call."""
    programs.run("""
        with WorkerGroup(2, engine()) as workers:
            data = os.urandom(1 << 20) * 100
            first = workers.submit(lambda data: data[::-1], data)
            second = workers.submit(len, data)
            assert second.results() == [len(data)] * 2
            assert first.results() == [data[::-1]] * 2
    """)


def test_what_cannot_be_pickled_is_named(programs: Programs) -> None:
    """An argument, function or result that cannot be pickled is named."""
    programs.run("""
        import threading

        class Client:
            def __init__(self):
                self.settings = {"lock": threading.Lock()}

        client = Client()

        def expect(what, function, *args, **kwargs):
            words = what + ": TypeError: cannot pickle '_thread.lock' object"
            try:
                workers.run(function, *args, **kwargs)
            except NotPicklableError as error:
                assert words in str(error) and isinstance(error, TypeError), error
            except WorkerFailedError as error:
                assert words in str(error) and isinstance(error.__cause__, NotPicklableError), error
            else:
                raise AssertionError(what)

        with WorkerGroup(2, engine()) as workers:
            expect("the call of max() cannot be pickled (argument 2)", max, 1, client)
            expect("the call of max() cannot be pickled (argument 'key')", max, [1], key=client)
            expect("the call of <lambda>() cannot be pickled (<lambda>())", lambda: client)
            expect("what the function has returned cannot be pickled", lambda: {"lock": threading.Lock()})
            assert workers.run(rank) == [0, 1]
    """)


def test_a_module_that_a_worker_cannot_import_is_named(programs: Programs) -> None:
    """If a worker cannot import a module, the call fails with its name and the worker stays."""
    programs.run("""
        import types

        module = types.ModuleType("made_up")
        exec("def f(): return 1", module.__dict__)
        sys.modules["made_up"] = module
        with WorkerGroup(1, engine()) as workers:
            try:
                workers.run(module.f)
            except WorkerFailedError as error:
                assert "f() failed on worker 0: ModuleNotFoundError: No module named 'made_up'" in str(error), error
            else:
                raise AssertionError
            assert workers.run(rank) == [0]
    """)


def test_a_call_that_takes_too_long_names_its_workers_and_goes_on(programs: Programs) -> None:
    """A call that times out names the missing workers, and its results can still be awaited."""
    programs.run("""
        def late():
            wait_for(lambda: rank() == 0 or is_marked("go on"))
            return rank()

        with WorkerGroup(2, engine()) as workers:
            call = workers.submit(late)
            try:
                call.results(timeout_s=0.3)
            except CallTimeoutError as error:
                assert 1 in error.missing and isinstance(error, TimeoutError), error
            else:
                raise AssertionError
            mark("go on")
            assert call.results() == [0, 1]
    """)


def test_torch_distributed_works_on_two_and_three_workers(programs: Programs) -> None:
    """torch.distributed and DistributedContext work on two and three workers."""
    programs.run("""
        def train():
            import torch, torch.distributed as dist
            from core_sdk.core import DistributedContext
            total = torch.tensor([float(rank())])
            dist.all_reduce(total)
            with DistributedContext.from_torch_distributed() as distributed:
                ranks = distributed.allgather(distributed.rank)
            return total.item(), ranks, dist.get_world_size()

        with WorkerGroup(2, engine()) as workers:
            workers.init_torch()
            assert workers.run(train) == [(1.0, [0, 1], 2)] * 2
            workers.restart(3)
            workers.init_torch()
            assert workers.run(train) == [(3.0, [0, 1, 2], 3)] * 3
    """)


def test_workers_have_their_context_without_torch(programs: Programs) -> None:
    """Workers on one node have a DistributedContext without torch."""
    programs.run("""
        def ranks():
            from core_sdk.core import DistributedContext
            with DistributedContext.from_torch_distributed() as distributed:
                result = distributed.allgather(distributed.rank)
            assert "torch" not in sys.modules
            return result

        with WorkerGroup(2, engine()) as workers, WorkerGroup(2, engine()) as others:
            calls = [group.submit(ranks) for group in (workers, others)]
            assert [call.results() for call in calls] == [[[0, 1]] * 2] * 2
    """)


def test_two_groups_work_beside_each_other(programs: Programs) -> None:
    """Two groups work at the same time, each with its own process group."""
    programs.run("""
        def total(number):
            import torch, torch.distributed as dist
            tensor = torch.tensor([number])
            dist.all_reduce(tensor)
            return tensor.item()

        with WorkerGroup(2, engine()) as first, WorkerGroup(2, engine()) as second:
            first.init_torch()
            second.init_torch()
            calls = [first.submit(total, 1), second.submit(total, 10)]
            assert [call.results() for call in calls] == [[2, 2], [20, 20]]
            first.close()
            assert second.run(total, 100) == [200, 200]
    """)


def test_stop_is_seen_by_should_preempt(programs: Programs) -> None:
    """stop() makes should_preempt() true in running calls, and idle workers stay."""
    output = programs.run("""
        def train():
            from core_sdk import core
            distributed = core.DistributedContext.from_torch_distributed()
            with core.init(distributed=distributed) as context:
                print("training", flush=True)
                while not context.preempt.should_preempt():
                    mark(f"asked {rank()}")
                    time.sleep(0.01)
            return "stopped"

        with WorkerGroup(2, engine()) as workers:
            call = workers.submit(train)
            wait_for(lambda: is_marked("asked 0") and is_marked("asked 1"))
            workers.stop()
            assert call.results(timeout_s=60) == ["stopped"] * 2
            workers.stop()
            assert workers.run(rank) == [0, 1]
    """)
    assert "training" in output


def test_a_stop_that_comes_as_a_call_ends_leaves_the_worker(programs: Programs) -> None:
    """SIGTERM does not end an idle worker, and ends one whose call does not handle it."""
    programs.run("""
        with WorkerGroup(2, engine()) as workers:
            for _ in range(100):
                workers.submit_to([0], rank).results()
                workers.stop()
            for pid in workers.run(os.getpid):
                os.kill(pid, signal.SIGTERM)
            assert workers.run(rank) == [0, 1]
            try:
                workers.run(signal.raise_signal, signal.SIGTERM)
            except WorkerDiedError as error:
                assert "was killed by SIGTERM" in error.cause, error
            else:
                raise AssertionError
    """)


def test_kill_ends_open_calls(programs: Programs) -> None:
    """kill() fails open calls, and the group can be restarted."""
    programs.run("""
        with WorkerGroup(2, engine()) as workers:
            call = workers.submit(time.sleep, 60)
            workers.kill()
            try:
                call.results()
            except WorkerError as error:
                assert "were killed" in str(error)
            else:
                raise AssertionError
            workers.restart()
            assert workers.run(rank) == [0, 1]
        try:
            workers.run(rank)
        except WorkerError as error:
            assert "are closed" in str(error)
        else:
            raise AssertionError
        workers.close()
    """)


def test_ctrl_c_ends_the_program_and_its_workers(programs: Programs) -> None:
    """Ctrl-C ends the program and its workers with a single traceback."""
    program = programs.start("""
        def train():
            mark(f"in call {rank()}")
            time.sleep(600)

        with WorkerGroup(2, engine()) as workers:
            print(*workers.run(os.getpid), flush=True)
            workers.run(train)
    """)
    assert program.process.stdout is not None
    pids = [int(word) for word in program.process.stdout.readline().split()]
    wait_for(lambda: all((programs.directory / f"in call {rank}").exists() for rank in range(2)))

    program.process.send_signal(signal.SIGINT)
    code, _, errors = program.wait()

    assert code == -signal.SIGINT, errors
    assert errors.count("Traceback") == 1, errors
    _wait_until_gone(pids)


def test_ctrl_c_ends_a_call_and_leaves_the_workers_to_a_notebook(programs: Programs) -> None:
    """The function gets its `KeyboardInterrupt`; the next call is not kept waiting."""
    program = programs.start("""
        def train():
            mark(f"in call {rank()}")
            time.sleep(600)

        with WorkerGroup(2, engine()) as workers:
            try:
                workers.run(train)
            except KeyboardInterrupt:
                print(workers.run(rank), flush=True)
    """)
    wait_for(lambda: all((programs.directory / f"in call {rank}").exists() for rank in range(2)))

    program.process.send_signal(signal.SIGINT)
    code, output, errors = program.wait()

    assert (code, output.strip().splitlines()[-1:]) == (0, ["[0, 1]"]), errors


@promise("ray-workers-end")
@pytest.mark.parametrize("moment", ["idle", "in a call"])
def test_no_worker_outlives_a_killed_program(programs: Programs, moment: str) -> None:
    """Workers and their children end with a killed program."""
    program = programs.start(f"""
        import subprocess

        def pids():
            return os.getpid(), subprocess.Popen(["sleep", "600"]).pid

        with WorkerGroup(2, engine()) as workers:
            print(*[pid for both in workers.run(pids) for pid in both], flush=True)
            call = workers.submit(time.sleep, 600) if {moment!r} == "in a call" else None
            time.sleep(600)
    """)
    assert program.process.stdout is not None
    pids = [int(word) for word in program.process.stdout.readline().split()]
    assert len(pids) == 4

    program.process.kill()
    program.wait()

    _wait_until_gone(pids)


def test_output_of_workers_is_forwarded_line_by_line_and_kept(programs: Programs) -> None:
    """Each line of a worker's output is forwarded and logged with its rank."""
    output = programs.run("""
        def speak():
            print("out of", rank())
            os.write(2, b"err of %d\\n" % rank())

        with WorkerGroup(2, engine(log_path="kept.log")) as workers:
            workers.run(speak)
            workers.restart()
            workers.run(speak)
    """)

    kept = (programs.directory / "kept.log").read_text().splitlines()
    expected = sorted(2 * [f"[rank={each}] {which} of {each}" for each in (0, 1) for which in ("out", "err")])
    assert sorted(kept) == expected
    assert sorted(output.splitlines()) == [line for line in expected if "out" in line]


def test_output_appears_in_a_notebook(programs: Programs) -> None:
    """Workers' output goes to a replaced `sys.stdout`, as in a notebook."""
    programs.run("""
        import io

        sys.stdout = cell = io.StringIO()
        with WorkerGroup(1, engine()) as workers:
            workers.run(print, "hello")
        assert "hello" in cell.getvalue()
    """)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("WorkerGroup(0, engine())", "ValueError: num_workers is 0"),
        ("WorkerGroup('2', engine())", "ValueError: num_workers is '2'"),
        (
            "workers = WorkerGroup(1, engine()); workers.close(); workers.restart()",
            "cannot restart them: the workers of this group are closed; make a new WorkerGroup",
        ),
        ("WorkerGroup(1, engine()).run(3)", "TypeError: 3 is not a function"),
        ("WorkerGroup(1, engine()).submit_to([1], rank)", "ValueError: there are no workers [1]: the group has 1"),
    ],
)
def test_mistakes_are_refused(programs: Programs, source: str, error: str) -> None:
    """Invalid arguments are refused, and an unclosed group does not block the exit."""
    code, _, errors = programs.start(source).wait()

    assert code == 1
    assert error in errors


@pytest.mark.parametrize("programs", ["local"], indirect=True)
def test_workers_that_cannot_be_started_are_explained(programs: Programs) -> None:
    """If workers cannot be started, the error has the system's reason or the worker's output."""
    programs.run("""
        def expect(text, program):
            own_engine = engine()
            python, sys.executable = sys.executable, program
            try:
                WorkerGroup(2, own_engine)
            except WorkersNotStartedError as error:
                assert text in str(error), error
            else:
                raise AssertionError
            finally:
                sys.executable = python

        expect("2 workers could not be started: No such file or directory", "/missing/python")
        expect("2 workers could not be started: worker 0 exited with status 1", "/bin/false")
        assert WorkerGroup(1, engine()).run(rank) == [0]
    """)


@pytest.mark.parametrize("programs", ["local"], indirect=True)
def test_a_worker_that_is_killed_as_it_starts_has_died(programs: Programs) -> None:
    """A worker that is killed while it starts counts as dead, and the engine can be used again."""
    killed = programs.directory / "killed"
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o755)

    programs.run(f"""
        own_engine = engine()
        python, sys.executable = sys.executable, {str(killed)!r}
        try:
            WorkerGroup(2, own_engine)
        except WorkerDiedError as error:
            assert error.rank == 0 and error.cause.startswith("was killed by SIGKILL"), error
        else:
            raise AssertionError
        sys.executable = python
        with WorkerGroup(2, own_engine) as workers:
            assert workers.run(rank) == [0, 1]
    """)


def test_a_long_message_is_shortened(programs: Programs) -> None:
    """A very long error message is shortened to its beginning and end."""
    programs.run("""
        def fail():
            raise ValueError("first" + "x" * 50_000_000 + "last")

        with WorkerGroup(1, engine()) as workers:
            try:
                workers.run(fail)
            except WorkerFailedError as error:
                text = str(error)
                assert "ValueError: firstxx" in text and "characters left out" in text, text[:1000]
                assert text.rstrip().endswith("xxlast") and len(text) < 300_000, len(text)
            else:
                raise AssertionError
    """)


def test_a_forked_child_does_not_answer_for_its_worker(programs: Programs) -> None:
    """A child that is forked in a call ends without answering for its worker."""
    programs.run("""
        def fork(how):
            pid = os.fork()
            if pid == 0:
                if how == "raises":
                    raise ValueError("of the child")
                if how == "exits":
                    sys.exit(3)
                return "child"
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

        with WorkerGroup(2, engine()) as workers:
            assert [workers.run(fork, how) for how in ("returns", "raises", "exits")] == [[0, 0], [1, 1], [3, 3]]
            assert workers.run(rank) == [0, 1]
    """)


@pytest.mark.parametrize("programs", ["local", "forked"], indirect=True)
def test_failed_groups_leave_no_descriptors(programs: Programs) -> None:
    """Groups that failed leave no open descriptors."""
    programs.run("""
        import gc
        gc.disable()

        def num_descriptors():
            return len(os.listdir("/proc/self/fd"))

        def fail_to_start():
            own_engine = engine()
            own_engine.start = None
            try:
                WorkerGroup(1, own_engine)
            except TypeError:
                pass

        def fail(die):
            with WorkerGroup(2, engine()) as workers:
                try:
                    workers.run(die)
                except WorkerDiedError:
                    return
                raise AssertionError

        def die():
            os._exit(3)

        fail(die)
        before = num_descriptors()
        for _ in range(20):
            fail(die)
            fail_to_start()
        assert num_descriptors() == before
    """)


@pytest.mark.parametrize("programs", ["forked"], indirect=True)
def test_workers_are_forked_from_a_new_process_if_the_last_one_was_killed(programs: Programs) -> None:
    """If the forking process was killed, new workers are forked from another one."""
    programs.run("""
        import psutil

        def spawner(*groups):
            workers = [pid for group in groups for pid in group.run(os.getpid)]
            children = [child for child in psutil.Process().children() if child.pid not in workers]
            return next(child for child in children if "_spawner_process.py" in " ".join(child.cmdline()))

        with WorkerGroup(1, engine()) as first:
            killed = spawner(first)
            killed.kill()
            killed.wait()
            assert first.run(rank) == [0]
            with WorkerGroup(1, engine()) as second:
                assert second.run(rank) == [0]
                assert spawner(first, second) != killed
            try:
                first.run(os._exit, 3)
            except WorkerDiedError as error:
                assert "exited with status 3" in error.cause, error
            else:
                raise AssertionError
    """)


def test_sixty_four_workers_start_answer_and_end(programs: Programs) -> None:
    """Sixty-four workers start, answer and end; on Ray eight."""
    programs.run(f"""
        with WorkerGroup({programs.most_workers}, engine()) as workers:
            assert workers.run(rank) == list(range({programs.most_workers}))
    """)


def _wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 30
    while left := [pid for pid in pids if is_living(pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
