"""A search says step by step how long a trial is trained."""

from __future__ import annotations

import functools
import statistics

import pytest
from core.rank_processes import Ended, Ranks, codes
from processes import wait_for
from stage import execute

from core_sdk._ground.records import CommandRecord, OperationCompleted, SearchRecord, StopAcknowledged
from core_sdk._home import Home, open_view
from core_sdk._home.attempts.operations import post_operations
from core_sdk._home.attempts.starting import AttemptStart, begin_in_experiment, resume
from core_sdk._home.journal import read_records
from core_sdk._home.rows import StreamPosition
from core_sdk._home.streams import read_news
from core_sdk._machine.slots import Slots

TRAIN = """
with core.init(distributed=distributed) as context:
    for operation in context.searcher.operations():
        print(operation.length, flush=True)
        if rank == 0:
            with context.checkpoint.store_path({"steps_completed": operation.length}) as (path, _):
                (path / "state").touch()
            operation.report_completed(1 / operation.length)
print("left")
"""


@pytest.fixture
def start(home: Home) -> AttemptStart:
    """Returns the first attempt of a trial whose search has asked for a length of 2."""
    Home.create(home.root)
    experiment_id = home.new_experiment("search").experiment_id
    with home.experiment(experiment_id).edit() as record:
        record.is_submitted = True
    start = begin_in_experiment(
        home.create_trial(),
        experiment_id,
        request_id="a",
        hparams={},
        seed=0,
        config={},
        command=lambda folder: CommandRecord(argv=["true"], cwd="/", environment={}),
        slots=Slots(()),
    )
    post_operations(start.folder, [2])
    execute(start)
    return start


def completed(home: Home) -> list[int]:
    """Returns the lengths that the trial has completed, in all attempts."""
    news = read_news(home.folder(1), StreamPosition()).news
    return [each.record.length for each in news if isinstance(each.record, OperationCompleted)]


def outputs(ended: list[Ended]) -> list[list[str]]:
    return [rank.output.split() for rank in ended]


@pytest.mark.parametrize("size", [1, 2])
def test_the_next_length_is_awaited_until_there_are_no_more(
    ranks: Ranks, home: Home, start: AttemptStart, size: int
) -> None:
    """All ranks wait for the next length until the search has no more."""
    processes = ranks.start(TRAIN, size)
    wait_for(lambda: completed(home) == [2])
    post_operations(start.folder, [2, 8])
    wait_for(lambda: completed(home) == [2, 8])
    post_operations(start.folder, [2, 8], is_closed=True)

    ended = [ranks.wait(process) for process in processes]

    assert codes(ended) == [0] * size, ended
    assert outputs(ended) == [["2", "8", "left"]] * size
    with open_view(home) as view:
        assert view.trial(1).state == "COMPLETED"


@pytest.mark.parametrize("size", [1, 2])
def test_a_trial_that_waits_is_stopped_and_goes_on_where_it_was(
    ranks: Ranks, home: Home, start: AttemptStart, size: int
) -> None:
    """A trial that waits can be stopped, and its next attempt does not repeat completed operations."""
    processes = ranks.start(TRAIN, size)
    wait_for(lambda: completed(home) == [2])
    start.folder.request_stop(1, "it waits for its promotion")
    first = [ranks.wait(process) for process in processes]
    with open_view(home) as view:
        paused = view.trial(1)
    post_operations(start.folder, [2, 8], is_closed=True)
    again = resume(start.folder, is_again=True)
    execute(again)

    second = ranks.run(TRAIN, size)

    assert outputs(first) == [["2", "left"]] * size, first
    assert (paused.state, paused.reason) == ("PAUSED", "it waits for its promotion")
    assert again.continuation is not None
    assert again.continuation.steps_completed == 2
    assert outputs(second) == [["8", "left"]] * size, second
    with open_view(home) as view:
        assert view.trial(1).state == "COMPLETED"


def test_a_trial_of_a_search_that_has_ended_waits_for_nothing(ranks: Ranks, home: Home, start: AttemptStart) -> None:
    """A trial of an ended search does only its own operations and does not wait for more."""
    with home.experiment(1).edit() as record:
        record.search = SearchRecord(searcher="async_halving", state="COMPLETED")

    (ended,) = ranks.run(TRAIN, 1)

    assert (ended.code, ended.output.split()) == (0, ["2", "left"]), ended


def test_a_script_can_acknowledge_the_stop_itself(ranks: Ranks, home: Home, start: AttemptStart) -> None:
    """With auto_ack=False, the script may save before it acknowledges the stop."""
    source = TRAIN.replace("operations()", "operations(auto_ack=False)").replace(
        'print("left")',
        '    if rank == 0: context.train.set_status("saving")\n    context.searcher.acknowledge_out_of_ops()',
    )
    processes = ranks.start(source, 1)
    wait_for(lambda: completed(home) == [2])

    start.folder.request_stop(1, "it waits")
    ended = [ranks.wait(process) for process in processes]

    assert codes(ended) == [0], ended
    assert [type(each.record) for each in read_news(home.folder(1), StreamPosition()).news][-1] is StopAcknowledged


def test_an_operation_of_a_search_must_be_completed(ranks: Ranks, start: AttemptStart) -> None:
    """An operation that ends without report_completed() is an error."""
    (ended,) = ranks.run(
        """
        with core.init(distributed=distributed) as context:
            for operation in context.searcher.operations():
                pass
    """,
        size=1,
    )

    assert ended.code == 1
    assert "the operation ended without report_completed()" in ended.errors


def test_the_wait_for_the_next_length_is_short(ranks: Ranks, home: Home, start: AttemptStart) -> None:
    """A length that the search posts reaches the script within a fraction of a second."""
    source = TRAIN.replace("print(operation.length, flush=True)", "print(time.time(), flush=True)")
    processes = ranks.start(source, 1)
    lengths = [2, 3, 4, 5, 6, 7]
    for num_posted in range(1, len(lengths) + 1):
        wait_for(functools.partial(is_completed, home, lengths[: num_posted - 1]))
        post_operations(start.folder, lengths[:num_posted])
    posted = read_times(start)
    post_operations(start.folder, lengths, is_closed=True)

    (ended,) = [ranks.wait(process) for process in processes]

    heard = [float(line) for line in ended.output.split()[:-1]]
    assert statistics.median(late - early for early, late in zip(posted[1:], heard[1:], strict=True)) < 1


def is_completed(home: Home, lengths: list[int]) -> bool:
    return completed(home) == lengths


def read_times(start: AttemptStart) -> list[float]:
    return [record.time for record in read_records(start.folder.operations_path)]


def test_what_was_posted_is_not_repeated(start: AttemptStart) -> None:
    """Posting the same operations again, as a restarted master does, writes nothing."""
    post_operations(start.folder, [2, 4], is_closed=True)
    size = start.folder.operations_path.stat().st_size

    post_operations(start.folder, [2, 4], is_closed=True)

    assert start.folder.operations_path.stat().st_size == size
