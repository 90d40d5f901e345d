"""A difference of two means is judged against the noise of their seeds."""

from __future__ import annotations

import math
import random

import pytest

from core_sdk._home.finding.noise import (
    MeanDifference,
    Pooled,
    Sample,
    difference,
    pooled_spread,
    t_probability,
    t_quantile,
)


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [(1, 12.7062), (2, 4.3027), (4, 2.7764), (4.5, 2.6589), (10, 2.2281), (40, 2.0211), (1e6, 1.9600)],
)
def test_quantiles_are_those_of_the_tables(degrees: float, quantile: float) -> None:
    """The quantiles of Student's t for 97.5 % are those of SciPy 1.16, also between whole degrees of freedom."""
    assert t_quantile(0.975, degrees) == pytest.approx(quantile, abs=1.5e-4)
    assert t_probability(quantile, degrees) == pytest.approx(0.975, abs=1e-5)


def test_the_pooled_spread_weighs_tries_by_their_seeds() -> None:
    """Variances count by their degrees of freedom, and a try of one seed says nothing."""
    samples = [Sample((1.0, 3.0)), Sample((0.0, 0.0, 0.0)), Sample((5.0,))]

    found = pooled_spread(samples)

    assert found is not None
    assert found.spread == pytest.approx(math.sqrt(2.0 / 3))
    assert found.degrees_of_freedom == 3
    assert pooled_spread([Sample((5.0,))]) is None


def test_many_seeds_are_judged_by_welch() -> None:
    """The interval of Welch's own kind: unequal spreads, and degrees of freedom that are not whole."""
    after, before = Sample((27.5, 21.0, 19.0, 23.6, 17.0)), Sample((27.1, 22.0, 20.8, 23.4, 23.4, 23.5))

    found = difference(after, before, pooled_spread([after, before]))

    assert found.method == "Welch's t"
    # SciPy 1.16: ttest_ind(after, before, equal_var=False).confidence_interval()
    assert (found.low, found.high) == pytest.approx((-6.754462, 3.261129), abs=1e-6)
    assert found.mark == "within noise"


def test_few_seeds_are_judged_by_the_pooled_spread() -> None:
    """Also one seed against one, as soon as another try of the study has several."""
    pooled = Pooled(0.01, 20)

    found = difference(Sample((0.90,)), Sample((0.85,)), pooled)

    assert found.margin == pytest.approx(2.0860 * 0.01 * math.sqrt(2), abs=1e-5)
    assert (found.mark, found.method) == ("beyond noise", "t with the study's pooled spread")
    assert found.is_better(smaller_is_better=False)


def test_a_try_that_is_much_noisier_than_the_study_has_its_own_spread() -> None:
    """One wild seed is not hidden by the calm ones of other tries."""
    wild, calm = Sample((0.5, 0.9, 0.95)), Sample((0.80, 0.81, 0.82))

    found = difference(wild, calm, Pooled(0.01, 20))

    assert (found.mark, found.method) == ("within noise", "Welch's t")


def test_nothing_is_known_about_noise_without_a_second_seed() -> None:
    """A difference of single values has no margin."""
    assert difference(Sample((2.0,)), Sample((1.0,)), None) == MeanDifference(
        1.0, None, "one seed", "no try has two seeds"
    )


def test_seeds_that_give_the_same_value_are_no_noise() -> None:
    """Where all seeds agree, a difference is one, and is not said to be beyond a noise."""
    assert difference(Sample((2.0, 2.0)), Sample((1.0, 1.0)), Pooled(0.0, 2)).mark == "no noise"


def test_one_difference_in_twenty_is_beyond_noise_by_luck() -> None:
    """The interval holds what it promises, for few seeds with a pooled spread and for many with their own."""
    draw = random.Random(3)
    num_beyond = {3: 0, 6: 0}
    for count in num_beyond:
        for _ in range(50):
            samples = [Sample(tuple(draw.gauss(0, 1) for _ in range(count))) for _ in range(10)]
            pooled = pooled_spread(samples)
            marks = [difference(one, samples[0], pooled).mark for one in samples[1:]]
            num_beyond[count] += marks.count("beyond noise")

    assert all(0.02 < num / (50 * 9) < 0.08 for num in num_beyond.values()), num_beyond
