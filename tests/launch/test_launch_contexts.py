"""What the launcher makes of ranks that use Core SDK: whom they name, and how they say that they stop or are done."""

from __future__ import annotations

import signal

import pytest
from launches import RunLaunch, StartLaunch

_PROLOGUE = """\
import sys, time
from core_sdk import core
def say(text):
    print(text, flush=True)
distributed = core.DistributedContext.from_torch_distributed()
"""


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_leaves_its_context_with_a_status_gives_it(rank: int, run_launch: RunLaunch) -> None:
    """The exit code is the status with which a rank left its Context, not its peer's."""
    ended = run_launch(
        _PROLOGUE
        + f"""
with core.init(distributed=distributed):
    distributed.allgather(1)
    if distributed.rank == {rank}:
        sys.exit(17)
    distributed.allgather(2)
"""
    )

    assert ended.code == 17, ended.stderr
    assert f"rank {rank} of 2 failed first" in ended.stderr


@pytest.mark.parametrize("rank", [0, 1])
def test_an_error_is_the_first_failure_however_long_its_rank_takes_to_end(rank: int, run_launch: RunLaunch) -> None:
    """A rank that raised is the first failure, even if its peer dies before it."""
    ended = run_launch(
        _PROLOGUE
        + f"""
try:
    with core.init(distributed=distributed):
        if distributed.rank == {rank}:
            raise ValueError("root")
        distributed.allgather(2)
finally:
    if distributed.rank == {rank}:
        time.sleep(1)
"""
    )

    assert ended.code == 1, ended.stderr
    assert f"rank {rank} of 2 failed first" in ended.stderr
    assert "ValueError: root" in ended.stderr


_STEPS = (
    _PROLOGUE
    + """
with core.init(distributed=distributed) as context:
    step = 0
    while not context.preempt.should_preempt():
        step += 1
        distributed.allgather(step)
        if step == 3:
            say("running")
        if sys.argv[1:] == ["completes"] and step == 20:
            say("done")
            break
if sys.argv[1:] == ["completes"]:
    time.sleep(120)
time.sleep(1)
"""
)


def test_a_second_sigterm_does_not_disturb_ranks_that_stop(start_launch: StartLaunch) -> None:
    """A second SIGTERM does not disturb ranks that have already left their Contexts."""
    launch = start_launch(_STEPS + 'say("left")\ntime.sleep(1)')
    launch.read_until("[rank=0] running", "[rank=1] running")

    launch.send(signal.SIGTERM)
    launch.read_until("[rank=0] left", "[rank=1] left")
    launch.send(signal.SIGTERM)

    assert launch.wait().code == 75


def test_a_training_that_is_complete_is_not_to_be_continued(start_launch: StartLaunch) -> None:
    """The stop came when there was nothing left to stop: a script that catches SIGTERM then ends well."""
    source = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n" + _STEPS
    launch = start_launch(source, "completes")
    launch.read_until("[rank=0] done", "[rank=1] done")

    launch.send(signal.SIGTERM)

    ended = launch.wait()
    assert ended.code == 0, ended.stderr
    assert "to be continued" not in ended.stderr


def test_what_a_rank_does_after_its_stop_does_not_fail_the_launch(start_launch: StartLaunch) -> None:
    """Ranks that have stopped as asked and left their Contexts are to be continued, whatever they exit with."""
    launch = start_launch(
        _PROLOGUE
        + """
with core.init(distributed=distributed) as context:
    say("ready")
    while not context.preempt.should_preempt():
        time.sleep(0.01)
sys.exit(distributed.rank)
"""
    )
    launch.read_until("[rank=0] ready", "[rank=1] ready")

    launch.send(signal.SIGTERM)

    ended = launch.wait()
    assert ended.code == 75, ended.stderr


def test_an_error_in_a_later_training_fails_a_launch_that_was_stopped(start_launch: StartLaunch) -> None:
    """That the ranks have left an earlier Context well does not hide an error in the next one."""
    launch = start_launch(
        _PROLOGUE
        + """
with core.init(distributed=distributed) as context:
    say("ready")
    while not context.preempt.should_preempt():
        time.sleep(0.01)
distributed = core.DistributedContext.from_torch_distributed()
with core.init(distributed=distributed) as context:
    raise ValueError("bad")
"""
    )
    launch.read_until("[rank=0] ready", "[rank=1] ready")

    launch.send(signal.SIGTERM)

    ended = launch.wait()
    assert ended.code == 1, ended.stderr
    assert "raised ValueError: bad" in ended.stderr
