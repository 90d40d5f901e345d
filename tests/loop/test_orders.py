"""Orders are functions of (seed, epoch, position)."""

from __future__ import annotations

import statistics
from collections import Counter

import pytest
import torch

from core_sdk.loop._orders import Listed, Order, Sequential, Shuffled, Weighted
from core_sdk.loop._orders._shuffled import shuffled
from core_sdk.loop._rng import key

FIRST_SHUFFLE = [7, 6, 4, 8, 1, 2, 0, 3, 5, 9]
LARGE_SHUFFLE = [8757839, 7054618, 6334444]


def epoch_of(order: Order, epoch: int = 0) -> list[int]:
    return order.indices(epoch, torch.arange(len(order)))


def test_a_shuffle_has_each_sample_once() -> None:
    """A shuffle contains each sample once, for any number of samples."""
    for size in [*range(1, 300), *range(300, 4000, 61), 65536, 65537]:
        numbers = shuffled(torch.arange(size), size, key(size))

        assert torch.equal(numbers.sort().values, torch.arange(size)), size


@pytest.mark.parametrize("size", [3, 5, 10, 60])
def test_each_sample_is_equally_often_at_each_position(size: int) -> None:
    """Over many epochs each sample is equally often at each position, by a chi-square test."""
    num_epochs = 600
    counts = torch.zeros(size, size)
    for epoch in range(num_epochs):
        counts[torch.arange(size), epoch_of(Shuffled(size, 1), epoch)] += 1

    expected = num_epochs / size
    # Rows and columns have given sums.
    chi_square = float(((counts - expected) ** 2 / expected).sum()) * (size - 1) / size
    freedom = (size - 1) ** 2
    assert abs(chi_square - freedom) < 4 * (2 * freedom) ** 0.5


def test_every_order_of_four_samples_comes_equally_often() -> None:
    """All orders of four samples are equally frequent, by a chi-square test."""
    num_epochs = 1200

    counts = Counter(tuple(epoch_of(Shuffled(4, 2), epoch)) for epoch in range(num_epochs))

    chi_square = sum((count - num_epochs / 24) ** 2 / (num_epochs / 24) for count in counts.values())
    assert len(counts) == 24
    assert chi_square < 23 + 4 * 46**0.5


def test_neighbours_in_a_shuffle_have_nothing_to_do_with_each_other() -> None:
    """Neighbouring samples, epochs and seeds are not correlated."""
    size = 20_000
    first = epoch_of(Shuffled(size, 0))

    others = [first[1:], list(range(size)), epoch_of(Shuffled(size, 0), 1), epoch_of(Shuffled(size, 1))]
    correlations = [statistics.correlation(first[: len(other)], other) for other in others]

    assert all(abs(correlation) < 4 / size**0.5 for correlation in correlations)
    steps = set(torch.tensor(first).diff().tolist())
    assert len(steps) > size * 0.6


def test_a_shuffle_is_the_same_for_ever() -> None:
    """The shuffle of a seed never changes, since old checkpoints depend on it."""
    assert epoch_of(Shuffled(10, 0)) == FIRST_SHUFFLE
    assert Shuffled(10**7, 7).indices(3, torch.arange(3)) == LARGE_SHUFFLE


def test_any_positions_can_be_asked_for() -> None:
    """Each position of any order can be computed without the others."""
    orders: list[Order] = [
        Sequential(50),
        Shuffled(50, 3),
        Shuffled(50, 3, 20),
        Shuffled(50, 3, 120),
        Weighted(torch.arange(50.0), 70, 3),
        Weighted(torch.arange(50.0), 30, 3, replacement=False),
        Listed(50, lambda epoch: [(index * 7 + epoch) % 50 for index in range(50)]),
    ]
    for order in orders:
        whole = epoch_of(order, 4)

        assert [order.indices(4, torch.tensor([position]))[0] for position in range(len(order))] == whole
        assert order.indices(4, torch.tensor([9, 2])) == [whole[9], whole[2]]


def test_an_epoch_of_several_shuffles() -> None:
    """An epoch longer than the data consists of several different shuffles."""
    whole = epoch_of(Shuffled(10, 5, 25))

    assert sorted(whole[:10]) == sorted(whole[10:20]) == list(range(10))
    assert whole[:10] != whole[10:20]
    assert len(set(whole[20:])) == 5


def test_weights_are_followed() -> None:
    """Samples are drawn in proportion to their weights, and a weight of 0 is never drawn."""
    weights = torch.tensor([0.0, 1.0, 2.0, 0.0, 5.0, 0.0])
    num_draws = 40_000

    counts = Counter(epoch_of(Weighted(weights, num_draws, 1)))

    for index, weight in enumerate(weights.tolist()):
        expected = num_draws * weight / 8
        assert abs(counts[index] - expected) <= 4 * expected**0.5


def test_weights_without_replacement() -> None:
    """Without replacement no sample is drawn twice, and heavy ones mostly come first."""
    order = Weighted(torch.tensor([1.0, 0.0, 8.0, 1.0]), 3, 1, replacement=False)

    epochs = [epoch_of(order, epoch) for epoch in range(500)]

    assert all(sorted(epoch) == [0, 2, 3] for epoch in epochs)
    assert abs(sum(epoch[0] == 2 for epoch in epochs) - 400) < 4 * (500 * 0.8 * 0.2) ** 0.5


def test_a_small_weight_beside_a_huge_one_is_not_forgotten() -> None:
    """A small weight next to a huge one is drawn, and a weight of 0 is not."""
    order = Weighted(torch.tensor([1e17, 0.0, 1.0], dtype=torch.float64), 2, 1, replacement=False)

    assert epoch_of(order) == [0, 2]


@pytest.mark.parametrize("weights", [[0.0, 0.0], [1.0, -1.0], [float("nan"), 1.0], [float("inf"), 1.0]])
def test_weights_that_cannot_be_followed_are_refused(weights: list[float]) -> None:
    """Weights that are negative, not finite or all 0 are refused."""
    with pytest.raises(ValueError, match="weights must be finite numbers of 0 or more"):
        Weighted(torch.tensor(weights), 2, 0)


def test_more_draws_than_samples_need_replacement() -> None:
    """More draws than samples with a weight are refused without replacement."""
    with pytest.raises(ValueError, match="cannot draw 2 samples without replacement, because only 1"):
        Weighted(torch.tensor([1.0, 0.0]), 2, 0, replacement=False)


def test_keys_of_a_sampler_may_be_anything() -> None:
    """A sampler may give strings or tuples as keys."""
    order = Listed(3, lambda epoch: ["a", ("b", 1), 2.5])

    assert epoch_of(order) == ["a", ("b", 1), 2.5]
