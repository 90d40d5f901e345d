"""When something is due in a training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from core_sdk.loop import Batch, Counters, Epoch, Record, Seconds, TrainUnit
from core_sdk.loop._schedule import TrainingClock, check_length, completed_share, is_due, is_reached

BATCHES_PER_EPOCH = 3
BATCH_SIZE = 8


def counters(batches: int, seconds_per_batch: float = 0.5) -> Counters:
    return Counters(batches, batches // BATCHES_PER_EPOCH, batches * BATCH_SIZE, batches * seconds_per_batch)


def due_batches(unit: TrainUnit, num_batches: int = 12) -> list[int]:
    """Returns the batches after which the unit is due."""
    return [i for i in range(1, num_batches + 1) if is_due(unit, counters(i - 1), counters(i))]


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        (Batch(5), [5, 10]),
        (Batch([1, 7, 99]), [1, 7]),
        (Batch({2}), [2]),
        (Batch(range(4, 7)), [4, 5, 6]),
        (Batch(0), list(range(1, 13))),
        (Batch(-1), list(range(1, 13))),
        (Epoch(2), [6, 12]),
        (Epoch([1, 3]), [3, 9]),
        (Epoch(0), [3, 6, 9, 12]),
        (Record(20), [3, 5, 8, 10]),
        (Record(3 * BATCH_SIZE), [3, 6, 9, 12]),
        (Record({1, 8, 9, 96}), [1, 2, 12]),
        (Record(0), list(range(1, 13))),
        (Seconds(2), [4, 8, 12]),
        (Seconds(0.25), list(range(1, 13))),
        (Seconds([0.1, 3.2]), [1, 7]),
        (Seconds(0), list(range(1, 13))),
    ],
    ids=str,
)
def test_a_number_is_a_period_and_a_container_holds_counts(unit: TrainUnit, expected: list[int]) -> None:
    """Below 1, each batch is due, or with `Epoch` the last batch of each epoch."""
    assert due_batches(unit) == expected


def test_a_container_may_be_of_the_users_own_class() -> None:
    """Any object with `in` may be a container of counts."""

    class Squares:
        def __contains__(self, count: object) -> bool:
            return isinstance(count, int) and int(count**0.5) ** 2 == count

    assert due_batches(Batch(Squares())) == [1, 4, 9]


def test_nothing_is_due_without_a_unit() -> None:
    """A unit of None is never due."""
    assert not is_due(None, counters(0), counters(1))


def test_a_records_period_holds_when_the_batch_size_changes() -> None:
    """Counts are of samples; a batch that passes several counts is due once."""
    assert is_due(Record(100), Counters(records=90), Counters(records=410))
    assert not is_due(Record(100), Counters(records=410), Counters(records=499))


@pytest.mark.parametrize("value", [None, 1.5, "ten", True])
def test_a_value_of_a_foreign_kind_is_refused(value: Any) -> None:
    """A unit with a value of another type is refused at once."""
    with pytest.raises(TypeError, match=r"Batch\("):
        Batch(value)


@pytest.mark.parametrize(
    ("length", "error", "words"),
    [
        (None, TypeError, "Batch"),
        (10, TypeError, "Batch"),
        (Batch([10]), TypeError, "schedule"),
        (Epoch(0), ValueError, "above 0"),
        (Seconds(-1), ValueError, "above 0"),
    ],
)
def test_a_length_is_one_number_above_zero(length: Any, error: type[Exception], words: str) -> None:
    """A length must be one number above zero; the error shows an alternative."""
    with pytest.raises(error, match=words):
        check_length(length)


@pytest.mark.parametrize(
    ("length", "last_batch"), [(Batch(7), 7), (Epoch(2), 6), (Record(25), 4), (Seconds(1.2), 3), (Seconds(1), 2)]
)
def test_a_length_is_reached_by_its_last_batch(length: TrainUnit, last_batch: int) -> None:
    """A length is reached by its last batch and stays reached."""
    check_length(length)

    assert [is_reached(length, counters(i)) for i in range(12)] == [i >= last_batch for i in range(12)]
    assert completed_share(length, counters(0)) == 0
    assert completed_share(length, counters(100)) == 1
    assert completed_share(Batch(10), counters(4)) == 0.4


def test_units_of_equal_kind_and_value_are_equal() -> None:
    """Units of the same kind and value are equal."""
    assert Batch(3) == Batch(3)
    assert Batch(3) != Epoch(3)
    assert repr(Epoch([1, 2])) == "Epoch([1, 2])"


class Rank:
    """A rank with its own inaccurate clock; `seconds` is the time of its `TrainingClock`."""

    def __init__(self, units: Sequence[TrainUnit], broadcast: Callable[[Any], Any], error: float) -> None:
        self.time = 0.0
        self.clock = TrainingClock(units, broadcast, now=lambda: 1000 * error + self.time * (1 + error))

    def after_batch(self, batches: int, time: float) -> float:
        self.time = time
        return self.clock.after_batch(batches)


class Ranks:
    """Ranks in one thread, with the chief first, so that its values are there for the others."""

    def __init__(self, units: Sequence[TrainUnit], num_ranks: int) -> None:
        self.num_messages = 0
        self._message: Any = None
        self._ranks = [
            Rank(units, self._sent if rank == 0 else self._received, error=0.1 * rank) for rank in range(num_ranks)
        ]

    def seconds(self, times: Sequence[float]) -> Iterator[list[float]]:
        for batches, time in enumerate(times, start=1):
            yield [rank.after_batch(batches, time) for rank in self._ranks]

    def _sent(self, value: Any) -> Any:
        self.num_messages += 1
        self._message = value
        return value

    def _received(self, _own_value: Any) -> Any:
        return self._message


def test_ranks_agree_on_seconds_by_the_clock_of_the_chief() -> None:
    """Each count is noticed within two batches, with few messages in ten thousand batches."""
    unit = Seconds(60)
    ranks = Ranks([unit], num_ranks=3)
    times = [0.05 * i for i in range(1, 10_001)]

    seconds = list(ranks.seconds(times))

    assert all(len(set(of_ranks)) == 1 for of_ranks in seconds)
    by_chief = [Counters(seconds=0.0), *(Counters(seconds=of_ranks[0]) for of_ranks in seconds)]
    noticed = [times[i] for i in range(len(times)) if is_due(unit, by_chief[i], by_chief[i + 1])]
    assert [round(time // 60) for time in noticed] == list(range(1, 9))
    assert all(time % 60 <= 0.1001 for time in noticed)
    assert ranks.num_messages < 150


def test_no_message_is_sent_without_seconds() -> None:
    """Without seconds in the schedule the ranks exchange no messages."""
    ranks = Ranks([Batch(1), Epoch(1)], num_ranks=2)

    assert {tuple(each) for each in ranks.seconds([1.0, 2.0, 3.0])} == {(0.0, 0.0)}
    assert ranks.num_messages == 0


def test_no_message_is_sent_after_the_last_count() -> None:
    """After the last scheduled second the ranks exchange no messages."""
    ranks = Ranks([Seconds([1.5])], num_ranks=2)

    list(ranks.seconds([float(i) for i in range(1, 100)]))

    assert ranks.num_messages <= 3


def test_a_clock_goes_on_after_a_resume() -> None:
    """A resumed clock does not count the time between attempts."""
    clock = TrainingClock(
        [Seconds(10)], lambda value: value, Counters(batches=7, seconds=8.5), now=iter([50, 52]).__next__
    )

    assert clock.after_batch(8) == 10.5
