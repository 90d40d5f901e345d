"""A stop that is asked for is heard, and only by scripts that listen."""

from __future__ import annotations

import datetime
import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from processes import Script, wait_for
from promises import promise

from core_sdk import client, core
from core_sdk._ground.records import Ended, StopAcknowledged
from core_sdk._home import Home
from core_sdk._home.journal import read_records
from core_sdk.errors import ReportsDroppedError

LISTENS = """
from core_sdk import core
with core.init() as context:
    context.preempt.should_preempt()
    print("listening")
    while not context.preempt.should_preempt():
        pass
    print("stopping")
"""


def outcome(home: Home) -> str:
    last = list(read_records(home.trial(1).journal_path(1)))[-1]
    assert isinstance(last, Ended)
    return last.outcome


@promise("stop-asked-for")
def test_sigterm_stops_a_script_that_listens(home: Home, start_script: Callable[..., Script]) -> None:
    """A script that asks should_preempt() ends by itself on SIGTERM, and the trial is paused."""
    script = start_script(LISTENS)
    script.read_until("listening")
    script.process.send_signal(signal.SIGTERM)
    status, output, _ = script.wait()

    assert (status, output) == (0, "stopping\n")
    assert outcome(home) == "paused"


def test_a_stop_is_told_at_once_in_a_long_step(start_script: Callable[..., Script], tmp_path: Path) -> None:
    """A stop is announced on stderr at once, before a long step ends."""
    long_step = "        print('in a step')\n        while not pathlib.Path('go').exists(): time.sleep(0.01)"
    script = start_script("import pathlib, time\n" + LISTENS.replace("        pass", long_step))
    script.read_until("in a step")
    script.process.send_signal(signal.SIGTERM)
    assert script.process.stderr is not None

    is_told = "stopping at the next step, as asked by SIGTERM\n" in script.process.stderr

    (tmp_path / "go").touch()
    assert is_told


@promise("stop-by-signal")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_kills_a_script_that_never_asks(start_script: Callable[..., Script], number: signal.Signals) -> None:
    """SIGTERM or Ctrl-C ends a script that never calls should_preempt()."""
    script = start_script("from core_sdk import core\nwith core.init():\n    print('here')\n    while True: pass\n")
    script.read_until("here")
    script.process.send_signal(number)

    assert script.wait()[0] == -number


@promise("stop-by-signal")
def test_the_first_ctrl_c_stops_a_script_that_listens(home: Home, start_script: Callable[..., Script]) -> None:
    """The first Ctrl-C makes should_preempt() true and raises no `KeyboardInterrupt`."""
    script = start_script(LISTENS)
    script.read_until("listening")
    script.process.send_signal(signal.SIGINT)
    status, output, errors = script.wait()

    assert (status, output) == (0, "stopping\n")
    assert "stopping at the next step; Ctrl-C again ends the training at once" in errors
    assert outcome(home) == "paused"


def test_ctrl_c_in_a_script_whose_context_is_left_ends_it(start_script: Callable[..., Script]) -> None:
    """When the Context is closed, Ctrl-C is handled by the interpreter again."""
    script = start_script(
        """
        import signal
        from core_sdk import core
        with core.init() as context:
            context.preempt.should_preempt()
        print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
        while True: pass
        """
    )
    script.read_until("True")
    script.process.send_signal(signal.SIGINT)

    assert script.wait()[0] == -signal.SIGINT


@promise("stop-by-signal")
def test_a_script_that_ignores_ctrl_c_goes_on_ignoring_it(home: Home, start_script: Callable[..., Script]) -> None:
    """A script that ignores SIGINT, as background jobs of a shell do, keeps ignoring it."""
    script = start_script("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + LISTENS)
    script.read_until("listening")
    script.process.send_signal(signal.SIGINT)
    script.process.send_signal(signal.SIGTERM)

    assert "stopping at the next step" not in script.wait()[2]
    assert outcome(home) == "paused"


@promise("stop-asked-for", "stop-pauses", "stop-seen-soon")
def test_a_stop_request_in_the_folder_is_seen(home: Home) -> None:
    """The request that `core-sdk trial pause` writes makes should_preempt() true, soon and for good."""
    with core.init() as context:
        assert not context.preempt.should_preempt()
        home.trial(1).request_stop(1, "a test")

        begin = time.monotonic()
        wait_for(context.preempt.should_preempt)
        assert time.monotonic() - begin < 2.0  # a quarter of a second, and room for a busy machine
        assert context.preempt.should_preempt()

    acknowledged = [r for r in read_records(home.trial(1).journal_path(1)) if isinstance(r, StopAcknowledged)]
    assert [record.source for record in acknowledged] == ["a test"]
    assert outcome(home) == "paused"


@promise("stop-asked-for")
@pytest.mark.parametrize(
    "deadline",
    [
        lambda: 0.3,
        lambda: datetime.timedelta(seconds=0.3),
        lambda: datetime.datetime.now() + datetime.timedelta(seconds=0.3),
        lambda: datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=0.3),
    ],
)
def test_a_deadline_stops(home: Home, deadline: Callable[[], Any]) -> None:
    """A deadline may be given in seconds, as a time span or as a time."""
    with core.init(deadline=deadline()) as context:
        wait_for(context.preempt.should_preempt)


@promise("stop-asked-for")
def test_a_deadline_does_not_stop_before_its_time(home: Home) -> None:
    """should_preempt() is false in any number of calls before the deadline."""
    with core.init(deadline=3600) as context:
        assert not any(context.preempt.should_preempt() for _ in range(100_000))


def test_a_stop_that_is_not_acknowledged_is_no_pause(home: Home) -> None:
    """With auto_ack=False, a stop that the script does not acknowledge does not pause the trial."""
    with core.init(deadline=0) as context:
        wait_for(lambda: context.preempt.should_preempt(auto_ack=False))

    assert outcome(home) == "completed"


def test_a_stop_may_be_acknowledged_late(home: Home) -> None:
    """A stop may be acknowledged later, for example when the checkpoint is stored."""
    with core.init(deadline=0) as context:
        wait_for(lambda: context.preempt.should_preempt(auto_ack=False))
        context.preempt.acknowledge_preemption_signal()

    assert outcome(home) == "paused"


@pytest.mark.parametrize(("asks", "ended"), [(True, "paused"), (False, "error")])
def test_an_exit_that_asks_to_be_continued_is_a_pause_after_a_stop_alone(home: Home, asks: bool, ended: str) -> None:
    """Exit status 75 counts as a pause only after a stop; otherwise it is a failure."""
    with pytest.raises(SystemExit), core.init(deadline=0) as context:
        if asks:
            wait_for(context.preempt.should_preempt)
        sys.exit(75)

    assert outcome(home) == ended


def test_a_failure_after_the_stop_is_a_failure(home: Home) -> None:
    """A script that fails after a stop has failed and is not paused."""
    with pytest.raises(OSError), core.init(deadline=0) as context:
        wait_for(context.preempt.should_preempt)
        raise OSError("no space for the checkpoint")

    assert outcome(home) == "error"


def test_asking_before_the_start_is_a_mistake() -> None:
    """should_preempt() before start() raises, as in the predecessor's API."""
    context = core.init()

    with pytest.raises(RuntimeError):
        context.preempt.should_preempt()


def test_a_context_may_be_started_and_closed_without_with(home: Home) -> None:
    """A Context may be used with start() and close(), as in the cells of a notebook."""
    context = core.init(deadline=0)
    context.start()
    wait_for(context.preempt.should_preempt)
    context.close()

    assert outcome(home) == "paused"


def test_the_previous_handler_is_called_and_given_back() -> None:
    """The script's own SIGTERM handler is called during the Context and restored afterwards."""
    calls: list[int] = []

    def mine(number: int, frame: object) -> None:
        calls.append(number)

    before = signal.signal(signal.SIGTERM, mine)
    try:
        with core.init() as context:
            context.preempt.should_preempt()
            signal.raise_signal(signal.SIGTERM)
            assert context.preempt.should_preempt()
        assert calls == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


@promise("stop-under-slurm")
def test_sigusr1_stops_under_slurm(home: Home, start_script: Callable[..., Script]) -> None:
    """Under Slurm, SIGUSR1 stops the script, which ends with status 75 and is paused."""
    script = start_script(LISTENS, SLURM_JOB_ID="7")
    script.read_until("listening")
    script.process.send_signal(signal.SIGUSR1)
    status, output, _ = script.wait()

    assert (status, output) == (75, "stopping\n")
    assert outcome(home) == "paused"


def test_sigusr1_is_heard_where_the_launcher_has_blocked_it(home: Home, start_script: Callable[..., Script]) -> None:
    """Under Slurm, SIGUSR1 stops the script even if the launcher has blocked the signal."""
    script = start_script(
        f"import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n{LISTENS}", SLURM_JOB_ID="7"
    )
    script.read_until("listening")
    script.process.send_signal(signal.SIGUSR1)
    status, output, _ = script.wait()

    assert (status, output) == (75, "stopping\n")
    assert outcome(home) == "paused"


def test_a_blocked_sigusr1_that_never_comes_keeps_nobody(start_script: Callable[..., Script]) -> None:
    """The thread that waits for a blocked SIGUSR1 ends with the Context."""
    script = start_script(
        """
        import signal
        from core_sdk import core
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        with core.init() as context:
            context.preempt.should_preempt()
        print("ended", flush=True)
        """,
        SLURM_JOB_ID="7",
    )

    assert script.wait()[:2] == (0, "ended\n")


def test_sigterm_stops_under_slurm_too(home: Home, start_script: Callable[..., Script]) -> None:
    """Under Slurm, SIGTERM stops the script; `scancel`, time limits and preemption send it."""
    script = start_script(LISTENS, SLURM_JOB_ID="7")
    script.read_until("listening")
    script.process.send_signal(signal.SIGTERM)

    assert script.wait()[0] == 75
    assert outcome(home) == "paused"


@pytest.mark.parametrize(("completes", "status"), [(True, 0), (False, 75)])
def test_a_job_begun_again_in_the_same_program_ends_by_its_last_attempt(
    home: Home, start_script: Callable[..., Script], completes: bool, status: int
) -> None:
    """A program that begins its job several times ends with the status of the last attempt."""
    script = start_script(f"""
        from core_sdk import core
        for deadline in (0, {None if completes else 0}):
            with core.init(job_id="digits", deadline=deadline) as context:
                while deadline == 0 and not context.preempt.should_preempt():
                    pass
    """)

    assert script.wait()[0] == status
    assert client.get_trial(1).state.name == ("COMPLETED" if completes else "PAUSED")


@promise("stop-under-slurm")
def test_sigusr1_is_left_alone_elsewhere(start_script: Callable[..., Script]) -> None:
    """Outside of Slurm, SIGUSR1 keeps its default effect."""
    script = start_script(LISTENS, SLURM_JOB_ID="")
    script.read_until("listening")
    script.process.send_signal(signal.SIGUSR1)

    assert script.wait()[0] == -signal.SIGUSR1


def test_a_handler_of_sigusr1_is_called_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The script's own SIGUSR1 handler is called and restored, and other handlers are unchanged."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    calls: list[int] = []

    def mine(number: int, frame: object) -> None:
        calls.append(number)

    before = signal.signal(signal.SIGUSR1, mine), signal.getsignal(signal.SIGTERM)
    try:
        with core.init() as context:
            context.preempt.should_preempt()
            signal.raise_signal(signal.SIGUSR1)
            assert context.preempt.should_preempt()
        assert calls == [signal.SIGUSR1]
        assert (signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGTERM)) == (mine, before[1])
    finally:
        signal.signal(signal.SIGUSR1, before[0])


@promise("stop-by-signal")
@pytest.mark.parametrize(
    "main_waits", ["thread.join()", "time.sleep(60)", "signal.pause()", "while thread.is_alive(): pass"]
)
def test_sigterm_stops_a_script_that_asks_in_another_thread(
    home: Home, start_script: Callable[..., Script], main_waits: str
) -> None:
    """SIGTERM stops a script that asks in another thread, whatever the main thread does."""
    script = start_script(
        f"""
        import os, signal, threading, time
        from core_sdk import core

        def train():
            context.preempt.should_preempt()
            print("listening")
            while not context.preempt.should_preempt():
                pass
            context.close()
            print("stopping")
            os._exit(0)

        context = core.init()
        context.start()
        thread = threading.Thread(target=train)
        thread.start()
        {main_waits}
        """
    )
    script.read_until("listening")
    script.process.send_signal(signal.SIGTERM)
    status, output, errors = script.wait()

    assert (status, output, errors) == (0, "stopping\n", "")
    assert outcome(home) == "paused"


def test_a_sigterm_that_does_not_wake_the_main_thread_is_heard(home: Home, start_script: Callable[..., Script]) -> None:
    """A SIGTERM that is delivered to the training's thread is noticed while the main thread sleeps."""
    script = start_script(
        """
        import signal, threading, time
        from core_sdk import core

        def train():
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            context.preempt.should_preempt()
            print("listening", flush=True)
            while not context.preempt.should_preempt():
                time.sleep(0.01)

        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        with core.init() as context:
            thread = threading.Thread(target=train)
            thread.start()
            thread.join()
        """
    )
    script.read_until("listening")

    script.process.send_signal(signal.SIGTERM)

    assert script.wait()[0] == 0
    assert outcome(home) == "paused"


def test_sigterm_kills_a_script_whose_threads_never_ask(start_script: Callable[..., Script]) -> None:
    """SIGTERM ends a script that never asks, even while the main thread waits in C code."""
    script = start_script(
        """
        import ctypes, threading
        from core_sdk import core
        with core.init():
            print("here")
            ctypes.CDLL(None).sleep(60)
        """
    )
    script.read_until("here")
    script.process.send_signal(signal.SIGTERM)

    assert script.wait()[0] == -signal.SIGTERM


def test_a_context_of_another_thread_says_that_sigterm_is_not_caught(caplog: pytest.LogCaptureFixture) -> None:
    """A Context in another thread warns that SIGTERM is not caught, until the main thread asks."""
    with ThreadPoolExecutor(1) as other:
        context = other.submit(core.init).result()
        other.submit(context.start).result()
        for _ in range(3):
            other.submit(context.preempt.should_preempt).result()
        before = signal.getsignal(signal.SIGTERM)
        context.preempt.should_preempt()
        after = signal.getsignal(signal.SIGTERM)
        context.close()

    assert before is signal.SIG_DFL
    assert caplog.text.count("SIGTERM is not caught") == 1
    assert after is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_the_main_threads_own_signal_is_given_back() -> None:
    """SIGURG is restored after the Context, and a handler of the script is left alone."""
    with core.init():
        assert signal.getsignal(signal.SIGURG) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGURG) is signal.SIG_DFL

    signal.signal(signal.SIGURG, print)
    try:
        with core.init():
            assert signal.getsignal(signal.SIGURG) is print
        assert signal.getsignal(signal.SIGURG) is print
    finally:
        signal.signal(signal.SIGURG, signal.SIG_DFL)


@promise("stop-seen-soon")
def test_the_stop_reaches_a_script_deep_in_other_code(home: Home, start_script: Callable[..., Script]) -> None:
    """A SIGTERM that arrives between two calls of should_preempt() is not lost."""
    script = start_script(
        """
        import signal
        from core_sdk import core
        with core.init() as context:
            context.preempt.should_preempt()
            signal.raise_signal(signal.SIGTERM)
            sum(range(10**6))
            print(context.preempt.should_preempt(), context.preempt.should_preempt())
        """
    )

    assert script.wait()[:2] == (0, "True True\n")


def test_a_forked_child_dies_of_sigterm(home: Home) -> None:
    """A forked child dies of SIGTERM, so that multiprocessing can terminate its workers."""
    with core.init() as context:
        context.preempt.should_preempt()
        ready, is_ready = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(is_ready, b"!")
            signal.pause()
            os._exit(42)
        # Python itself forgets a signal that comes while a child is being made.
        os.read(ready, 1)
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)

        assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
        assert not context.preempt.should_preempt()


def test_contexts_that_end_out_of_order_leave_no_handler(start_script: Callable[..., Script]) -> None:
    """Contexts that are closed in any order restore the default handler."""
    script = start_script(
        """
        import signal
        from core_sdk import core
        contexts = [core.init(), core.init()]
        for context in contexts:
            context.start()
            context.preempt.should_preempt()
        for context in contexts:
            context.close()
        print("closed")
        signal.raise_signal(signal.SIGTERM)
        print("survived")
        """
    )

    assert script.wait()[:2] == (-signal.SIGTERM, "closed\n")


def test_more_sigterms_do_not_lose_the_end(home: Home, start_script: Callable[..., Script]) -> None:
    """Further SIGTERMs during the closing of a Context do not turn a pause into a failure."""
    script = start_script(
        """
        from core_sdk import core
        with core.init() as context:
            context.preempt.should_preempt()
            print("listening")
            step = 0
            while not context.preempt.should_preempt():
                step += 1
                context.train.report_training_metrics(step, {"loss": 1.0})
        """
    )
    script.read_until("listening")
    wait_for(lambda: home.trial(1).journal_path(1).stat().st_size > 1_000_000)

    wait_for(lambda: script.process.send_signal(signal.SIGTERM) or script.process.poll() is not None)  # type: ignore[func-returns-value]

    assert outcome(home) == "paused"


def test_a_damaged_stop_request_stops(home: Home) -> None:
    """A stop request stops the script even if the file's content is damaged."""
    with core.init() as context:
        assert not context.preempt.should_preempt()
        home.trial(1).stop_path(1).write_bytes(b"{")

        wait_for(context.preempt.should_preempt)


def test_a_deadline_is_kept_while_the_folder_cannot_be_read(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """If the trial's folder cannot be read, one warning is given and the deadline is still kept."""
    with pytest.raises(ReportsDroppedError), core.init(deadline=1.0) as context:
        folder = home.trial(1).path
        folder.rename(home.root / "aside")
        folder.touch()  # reading in it is an error that is not "there is none"

        wait_for(context.preempt.should_preempt)
        folder.unlink()
        (home.root / "aside").rename(folder)

    assert caplog.text.count("trial pause` is not heard") == 1


def test_a_deadline_that_is_no_number_is_refused() -> None:
    """A deadline of NaN is refused, since it would never be reached."""
    with pytest.raises(ValueError, match="deadline"):
        core.init(deadline=float("nan"))
