"""Curves of several trials become one, and each point says how many trials are in it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_sdk._analysis.charts.grouped_curves import (
    Band,
    Centre,
    GroupedCurve,
    bin_width,
    group_curve,
    place_bins,
    place_width,
    refined,
)
from core_sdk._home.rows import Bins

Points = Mapping[int, float]


def binned(points: Points, width: int = 1) -> Bins:
    """Puts the values of steps into bins, as the index does."""
    by_bin: dict[int, list[int]] = {}
    for steps in sorted(points):
        by_bin.setdefault(steps // width, []).append(steps)
    rows = []
    for number, members in by_bin.items():
        finite = [points[steps] for steps in members if math.isfinite(points[steps])]
        values = (min(finite), max(finite), sum(finite) / len(finite)) if finite else (math.nan,) * 3
        rows.append((number, members[0], members[-1], len(members), len(finite), *values))
    return Bins(width, *(list(zip(*rows, strict=True)) or [()] * 8))


def curve_of(
    *trials: Points | Sequence[float], width: int = 1, centre: Centre = "mean", band: Band = "range"
) -> GroupedCurve:
    given = [one if isinstance(one, Mapping) else dict(enumerate(one, start=1)) for one in trials]
    return group_curve([binned(one, width) for one in given], centre, band)


def test_seeds_with_the_same_steps_are_joined_at_each_step() -> None:
    """Trials with the same steps are joined at each step, with the mean or median and the chosen band."""
    curve = curve_of([1, 4], [3, 4], [5, 10])
    median = curve_of([1, 4], [3, 4], [5, 10], centre="median", band="std")
    error = curve_of([1, 4], [3, 4], [5, 10], band="sem")

    assert (curve.join, curve.x, curve.num_trials) == ("common", [1, 2], [3, 3])
    assert (curve.centre, curve.low, curve.high) == ([3, 6], [1, 4], [5, 10])
    assert median.centre == [3, 4]
    assert median.low == pytest.approx([1, 4 - math.sqrt(12)])
    assert error.high == pytest.approx([3 + 2 / math.sqrt(3), 8])
    assert curve_of([1], [3], band="none").low == [None]


def test_a_trial_that_has_ended_is_not_continued() -> None:
    """Beyond a trial's end, the curve has the remaining trials, and says how many they are."""
    curve = curve_of([1, 1, 1, 1], [3, 3])

    assert curve.centre == [2, 2, 1, 1]
    assert curve.num_trials == [2, 2, 1, 1]


def test_only_the_common_steps_are_drawn_where_most_are_common() -> None:
    """Where most steps are common, only these are drawn, since the curve would jump between trials."""
    curve = curve_of({10: 1, 20: 1, 30: 1, 40: 1}, {10: 3, 20: 3, 25: 9, 30: 3, 40: 3})

    assert (curve.join, curve.x, curve.num_unshared) == ("common", [10, 20, 30, 40], 1)
    assert curve.centre == [2, 2, 2, 2]


def test_trials_with_few_common_steps_are_joined_in_bins() -> None:
    """Trials with few common steps are joined in bins that are wide enough to have points of each trial."""
    sparse, dense = dict.fromkeys(range(0, 640, 10), 1.0), dict.fromkeys(range(0, 640, 7), 3.0)

    curve = curve_of(sparse, dense)

    assert (curve.join, curve.width, curve.num_unshared) == ("bins", 16, 0)
    assert set(curve.num_trials) == {2}
    assert set(curve.centre) == {2.0}


def test_values_that_are_not_finite_are_left_out_and_counted() -> None:
    """Values that are not finite are left out and counted, and a point without any value is not drawn."""
    curve = curve_of([1, math.nan, math.inf], [3, 3, -math.inf])

    assert (curve.x, curve.centre, curve.num_trials, curve.num_left_out) == ([1, 2], [2, 3], [2, 1], 3)


def test_a_single_trial_has_no_deviation() -> None:
    """At points of a single trial, the deviation band is absent rather than of width zero."""
    curve = curve_of([1, 1], [3], band="std")

    assert curve.low == [pytest.approx(2 - math.sqrt(2)), None]


def test_long_curves_keep_their_extremes() -> None:
    """A trial's value in a bin is the mean of its points, and the band has every value."""
    curve = curve_of([1.0] * 63 + [100.0] + [1.0] * 64, [3.0] * 128, width=32)

    assert (curve.join, curve.count) == ("common", [31, 32, 32, 32, 1])
    assert max(high for high in curve.high if high is not None) == 100
    assert curve.centre[0] == 2


def test_nothing_makes_no_curve() -> None:
    """Without trials, or without points, the curve is empty."""
    assert curve_of().x == curve_of({}).x == []


def test_a_part_of_a_curve_is_drawn_in_finer_points() -> None:
    """A part of a curve is refined with narrower bins, unless these have fewer trials."""
    trials = [{10.0 * number + shift: float(number) for number in range(40)} for shift in (0, 3, 5)]
    coarse = group_curve([placed(one, 64.0) for one in trials])
    first, end = coarse.bins_around(100, 150)

    def part(width: float) -> GroupedCurve:
        return group_curve([placed({x: y for x, y in one.items() if first <= x < end}, width) for one in trials])

    finer = refined(coarse, part(16.0), first, end)

    assert (first, end, coarse.width, finer.width) == (64, 192, 64, 16)
    assert [x for x in finer.x if not first <= x < end] == [x for x in coarse.x if not first <= x < end]
    assert len(finer.x) > len(coarse.x)
    assert finer.x == sorted(finer.x)
    assert set(finer.num_trials) == {3}
    assert refined(coarse, part(64.0), first, end) is coarse
    assert refined(coarse, group_curve([]), first, end) is coarse
    single = group_curve([placed({x: 1.0}, 1.0) for x in (100.0, 103.0, 105.0)])
    assert refined(coarse, single, first, end) is coarse


@pytest.mark.parametrize(
    ("first", "last", "width"), [(0, 0, 1), (1, 300, 1), (1, 301, 2), (0, 99_999, 512), (-10, 10, 1), (10**9, 10**9, 1)]
)
def test_a_width_is_a_power_of_two(first: int, last: int, width: int) -> None:
    """The width of bins is a power of two, so that bins can be joined exactly as a trial grows."""
    assert bin_width(first, last, 300) == width


def placed(points: Mapping[float, float], width: float) -> Bins:
    """Puts a series, of which this is the value at each place, into bins of another axis than steps."""
    bins = binned(dict(enumerate(points.values())))
    return place_bins(bins, list(points), width)


def test_trials_are_joined_at_common_places_of_another_axis() -> None:
    """On another axis, trials are joined at places that they have in common, such as epochs."""
    curve = group_curve([placed({0.5: 1, 1: 2, 1.5: 3}, 0.25), placed({0.5: 3, 1: 4}, 0.25)], band="none")

    assert (curve.join, curve.x, curve.centre, curve.num_trials) == ("common", [0.5, 1, 1.5], [2, 3, 3], [2, 2, 1])


@pytest.mark.parametrize("num_points", [2, 40])
def test_trials_without_common_places_are_joined_in_bins(num_points: int) -> None:
    """Trials without common places are joined in bins, each with its number of trials; unknown places are left out."""
    quick = {10.0 * number: 1.0 for number in range(num_points)}
    slow = {14.0 * number + 3: 3.0 for number in range(num_points)}

    curve = group_curve([placed(quick, 0.25), placed(slow, 0.25)])

    assert curve.join == "bins"
    assert curve.x == sorted(curve.x)
    if num_points == 40:
        ended = curve.num_trials.index(1)
        assert (curve.width, set(curve.num_trials[:ended]), set(curve.centre[:ended])) == (16, {2}, {2.0})
        assert curve.x[ended - 1] <= max(quick) + 16
    assert place_bins(binned({1: 5.0, 2: 7.0}), [None, 2.5], 1).maxima.tolist() == [7.0]  # type: ignore[attr-defined]


def test_a_long_pause_does_not_widen_the_bins() -> None:
    """Such as between two attempts: bins that were as wide would hold all the rest."""
    with_pause = {(number if number < 50 else number + 10_000) + 0.5: 1.0 for number in range(100)}
    without = {number + 0.25: 3.0 for number in range(100)}

    curve = group_curve([placed(with_pause, 0.125), placed(without, 0.125)])

    assert (curve.join, curve.width, len(curve.x)) == ("bins", 1, 150)


@pytest.mark.parametrize(
    ("first", "last", "width"),
    [
        (0, 0, 1),
        (0, 1, 1 / 256),
        (-1, 0, 1 / 256),
        (1e12, 1e12 + 1e6, 4096),
        (5e-324, 1e-323, None),
        (-1e308, 1e308, None),
    ],
)
def test_a_width_may_be_a_part_of_one(first: float, last: float, width: float | None) -> None:
    """The width of places is a power of two, and may be below one."""
    found = place_width(first, last, 300)

    assert math.frexp(found)[0] == 0.5
    assert last // found - first // found < 300
    assert width is None or found == width


VALUES = st.floats(-1e308, 1e308) | st.sampled_from([math.nan, math.inf, -math.inf])
TRIALS = st.lists(st.dictionaries(st.integers(-100, 100), VALUES, max_size=30), max_size=6)
CENTRES, BANDS = st.sampled_from(["mean", "median"]), st.sampled_from(["range", "std", "sem", "none"])


@given(trials=TRIALS, width=st.sampled_from([1, 4, 32]), centre=CENTRES, band=BANDS, data=st.data())
def test_the_order_of_the_trials_does_not_matter(
    trials: list[Points], width: int, centre: Centre, band: Band, data: st.DataObject
) -> None:
    """The curve of a group does not depend on the order of its trials."""
    other = data.draw(st.permutations(trials))

    assert curve_of(*trials, width=width, centre=centre, band=band) == curve_of(
        *other, width=width, centre=centre, band=band
    )


@given(points=st.dictionaries(st.floats(-1e9, 1e9), VALUES, max_size=30), width=st.sampled_from([0.25, 1.0, 4096.0]))
def test_bins_of_another_axis_lose_nothing(points: Mapping[float, float], width: float) -> None:
    """Bins of another axis keep all points, each in the bin of its place."""
    bins = placed(points, width)

    finite = [value for value in points.values() if math.isfinite(value)]
    extremes = [value for value in (*bins.minima, *bins.maxima) if math.isfinite(value)]
    assert (sum(bins.counts), sum(bins.finite_counts)) == (len(points), len(finite))
    assert (min(extremes, default=0), max(extremes, default=0)) == (min(finite, default=0), max(finite, default=0))
    for number, first, last in zip(bins.numbers, bins.first_steps, bins.last_steps, strict=True):
        assert number * width <= first <= last < (number + 1) * width


@given(points=st.dictionaries(st.integers(-100, 100), VALUES, max_size=30), centre=CENTRES)
def test_a_group_of_one_is_the_trial(points: Points, centre: Centre) -> None:
    """The curve of a single trial has exactly its finite values."""
    finite = {step: value for step, value in sorted(points.items()) if math.isfinite(value)}

    curve = curve_of(points, centre=centre)

    assert curve.x == list(finite)
    assert curve.centre == curve.low == curve.high == list(finite.values())
    assert set(curve.num_trials) <= {1}


@given(trials=TRIALS, width=st.sampled_from([1, 4, 32]), centre=CENTRES)
def test_the_centre_lies_within_the_range(trials: list[Points], width: int, centre: Centre) -> None:
    """At each point, the centre lies between lowest and highest value, and no trial is counted twice."""
    curve = curve_of(*trials, width=width, centre=centre)

    for low, at, high, num in zip(curve.low, curve.centre, curve.high, curve.num_trials, strict=True):
        assert low is not None
        assert high is not None
        assert low <= at <= high
        assert 1 <= num <= len(trials)
    assert curve.x == sorted(set(curve.x))
    if curve.num_unshared == 0:
        finite = [value for one in trials for value in one.values() if math.isfinite(value)]
        drawn = [one for one in (*curve.low, *curve.high) if one is not None]
        assert (min(drawn, default=0), max(drawn, default=0)) == (min(finite, default=0), max(finite, default=0))
