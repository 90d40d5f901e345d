"""What trials get as hyperparameters."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from search.searches import SPACE

from core_sdk._ground.config.hyperparameters import (
    Categorical,
    Const,
    Double,
    Hyperparameter,
    HyperparameterSpace,
    Int,
    Log,
)
from core_sdk.search._points import GridPoints, Points, SampledPoints, grid_values


def hparams(points: Points, number: int) -> list[dict[str, object]]:
    return [points.next().hparams for _ in range(number)]


def test_samples_lie_in_their_ranges() -> None:
    """Samples lie within their ranges, and both ends of an int range are drawn."""
    space = HyperparameterSpace(
        {
            "const": Const({"type": "x"}),
            "int": Int(minval=-1, maxval=1),
            "double": Double(minval=2.0, maxval=3.0),
            "log": Log(base=10.0, minval=-3.0, maxval=-1.0),
            "categorical": Categorical(("a", None, [1])),
        }
    )

    drawn = hparams(SampledPoints(space, 0), 300)

    assert {json.dumps(one["const"]) for one in drawn} == {'{"type": "x"}'}
    assert {one["int"] for one in drawn} == {-1, 0, 1}
    assert all(2 <= float(str(one["double"])) < 3 for one in drawn)
    logs = [float(str(one["log"])) for one in drawn]
    assert all(1e-3 <= value < 1e-1 for value in logs)
    assert sum(value < 1e-2 for value in logs) == pytest.approx(150, abs=40)
    assert {json.dumps(one["categorical"]) for one in drawn} == {'"a"', "null", "[1]"}


def test_a_very_large_range_of_ints_keeps_its_ends() -> None:
    """A range of very large ints includes both of its ends, for which floats are too coarse."""
    largest = 2**62
    points = SampledPoints(HyperparameterSpace({"int": Int(minval=largest - 1, maxval=largest)}), 0)

    assert {one["int"] for one in hparams(points, 40)} == {largest - 1, largest}


def test_points_do_not_depend_on_the_order_in_a_file() -> None:
    """The points do not depend on the order of names in the configuration, in nested groups either."""
    inner = {"a": Double(minval=0.0, maxval=1.0), "b": Double(minval=0.0, maxval=1.0)}
    space = HyperparameterSpace({"x": HyperparameterSpace(dict(inner)), "y": Int(minval=0, maxval=9)})
    turned = HyperparameterSpace(
        {"y": Int(minval=0, maxval=9), "x": HyperparameterSpace(dict(reversed(inner.items())))}
    )

    assert hparams(SampledPoints(space, 3), 5) == hparams(SampledPoints(turned, 3), 5)


def test_a_seed_gives_the_same_points_in_every_process() -> None:
    """A seed gives the same points in every process, although Python's hashes differ between processes."""
    program = (
        "import json; from search.searches import SPACE; from core_sdk.search._points import SampledPoints;"
        "points = SampledPoints(SPACE, 5);"
        "print(json.dumps([(str(one.request_id), one.hparams) for one in (points.next() for _ in range(3))]))"
    )
    environment = dict(os.environ) | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    printed = {
        subprocess.check_output([sys.executable, "-c", program], env=environment | {"PYTHONHASHSEED": seed}, text=True)
        for seed in ("1", "2")
    }

    assert len(printed) == 1


def test_each_trial_has_random_numbers_of_its_own() -> None:
    """Each trial has its own random numbers: the third point is the same whether or not the first two were drawn."""
    first, second = SampledPoints(SPACE, 5), SampledPoints(SPACE, 5)
    second.num_made = 2

    assert [first.next() for _ in range(3)][-1] == second.next()


def test_seeds_give_different_points() -> None:
    """Different seeds give different points, even small adjacent ones."""
    ids = [points.next().request_id for seed in range(100) for points in [SampledPoints(SPACE, seed)] for _ in range(9)]

    assert len(set(ids)) == 900


@pytest.mark.parametrize(
    ("leaf", "values"),
    [
        (Const([1, 2]), [[1, 2]]),
        (Categorical(("a", "b")), ["a", "b"]),
        (Int(minval=1, maxval=4, count=4), [1, 2, 3, 4]),
        (Int(minval=1, maxval=3, count=9), [1, 2, 3]),
        (Int(minval=0, maxval=10, count=3), [0, 5, 10]),
        (Int(minval=0, maxval=10, count=1), [5]),
        (Double(minval=0.0, maxval=1.0, count=3), [0.0, 0.5, 1.0]),
        (Double(minval=0.1, maxval=0.3, count=2), [0.1, 0.3]),
        (Double(minval=0.0, maxval=1.0, count=1), [0.5]),
        (Log(base=10.0, minval=-3.0, maxval=-1.0, count=3), [1e-3, 1e-2, 1e-1]),
        (Log(base=10.0, minval=-3.0, maxval=-1.0, count=1), [1e-2]),
        (Log(base=2.0, minval=0.0, maxval=3.0, count=4), [1, 2, 4, 8]),
    ],
)
def test_the_values_of_a_grid(leaf: Hyperparameter, values: list[object]) -> None:
    """Grid values are evenly spaced from end to end; a single value lies in the middle."""
    assert grid_values(leaf) == pytest.approx(values) if isinstance(values[0], float) else grid_values(leaf) == values


def test_a_grid_has_every_point_once() -> None:
    """A grid, nested, categorical and logarithmic, has every point once; the last name varies fastest."""
    space = HyperparameterSpace(
        {
            "b": HyperparameterSpace({"k": Categorical(("x", "y"))}),
            "a": Log(base=10.0, minval=-2.0, maxval=-1.0, count=1),
            "c": Int(minval=1, maxval=2, count=2),
        }
    )
    points = GridPoints(space, 0)

    drawn = hparams(points, points.num_points)

    assert [(one["b"], one["c"]) for one in drawn] == [
        ({"k": "x"}, 1),
        ({"k": "x"}, 2),
        ({"k": "y"}, 1),
        ({"k": "y"}, 2),
    ]


def test_a_range_without_a_count_is_no_grid() -> None:
    """A range without a count has no grid values, and asking for them is a ValueError."""
    with pytest.raises(ValueError, match="count"):
        grid_values(Int(minval=0, maxval=1))


def test_request_ids_are_random_uuids() -> None:
    """Request ids are UUIDs of version 4, as other programs expect."""
    assert {create.request_id.version for create in (SampledPoints(SPACE, 0).next() for _ in range(2))} == {4}
