"""Hyperparameters are values, ranges and groups of them."""

from __future__ import annotations

import pytest
from ground.config.configurations import SINGLE, loaded, warnings_of

from core_sdk._ground.config.hyperparameters import (
    Categorical,
    Const,
    Double,
    Hyperparameter,
    HyperparameterSpace,
    Int,
    Log,
    nested,
    num_points,
)


@pytest.mark.parametrize(
    ("text", "hyperparameter"),
    [
        ("0.1", Const(0.1)),
        ("[64, 128]", Const([64, 128])),
        ("null", Const(None)),
        ("{}", Const({})),
        ("[{type: conv}]", Const([{"type": "conv"}])),
        ("{type: const, val: {type: conv}}", Const({"type": "conv"})),
        ("{type: const, val: null}", Const(None)),
        ("{type: int, minval: 1, maxval: 8}", Int(1, 8)),
        ("{type: int, minval: 1, maxval: 8, count: 3}", Int(1, 8, 3)),
        ("{type: double, minval: 0, maxval: 1e-1}", Double(0, 0.1)),
        ("{type: log, base: 10, minval: -5, maxval: -1, count: 5}", Log(10, -5, -1, 5)),
        ("{loguniform: [1e-5, 1e-1]}", Log(10, -5, -1)),
        ("{loguniform: [1e-5, 1e-1], count: 5}", Log(10, -5, -1, 5)),
        ("{type: categorical, vals: [adam, 3, null, {a: 1}]}", Categorical(("adam", 3, None, {"a": 1}))),
        (
            "{lr: 1, group: {wd: 2}}",
            HyperparameterSpace({"lr": Const(1), "group": HyperparameterSpace({"wd": Const(2)})}),
        ),
    ],
)
def test_a_hyperparameter_is_read(text: str, hyperparameter: Hyperparameter | HyperparameterSpace) -> None:
    """A hyperparameter without a type is a constant, and a map without one is a group."""
    assert loaded(f"{SINGLE}hyperparameters: {{x: {text}}}").hyperparameters.members["x"] == hyperparameter


def test_leaves_come_in_the_order_of_their_names() -> None:
    """Hyperparameters are listed in the order of their names, so that the file's order does not matter."""
    space = loaded(f"{SINGLE}hyperparameters: {{z: 1, b: {{y: 2, a: {{k: 3}}}}, a: 4}}").hyperparameters

    leaves = list(space.leaves())

    assert leaves == [(("a",), Const(4)), (("b", "a", "k"), Const(3)), (("b", "y"), Const(2)), (("z",), Const(1))]
    assert nested((path, num_points(leaf)) for path, leaf in leaves) == {"a": 1, "b": {"a": {"k": 1}, "y": 1}, "z": 1}


@pytest.mark.parametrize(
    ("hyperparameter", "number"),
    [
        (Const([1, 2]), 1),
        (Categorical((1, 2, 3)), 3),
        (Int(1, 8), None),
        (Int(1, 8, 3), 3),
        (Int(1, 8, 30), 8),
        (Double(0, 1, 30), 30),
        (Log(10, -2, -1), None),
    ],
)
def test_a_grid_has_so_many_values(hyperparameter: Hyperparameter, number: int | None) -> None:
    """The number of grid values of a range is its `count`, or the number of ints in it if that is smaller."""
    assert num_points(hyperparameter) == number


@pytest.mark.parametrize(
    ("log", "problem"),
    [
        (
            "{type: log, base: 10, minval: 1e-4, maxval: 1.0}",
            "has exponents as minval and maxval, and so values from 1.00023 to 10; for values from 0.0001 to 1 write "
            "loguniform: [0.0001, 1]",
        ),
        (
            "{type: log, base: 2, minval: 16, maxval: 256}",
            "has exponents as minval and maxval, and so values from 65536 to 1.15792e+77; for values from 16 to 256 "
            "write loguniform: [16, 256]",
        ),
    ],
)
def test_values_in_the_place_of_exponents_are_suspected(log: str, problem: str) -> None:
    """A log range with values in place of exponents, as in the predecessor's quick start, is warned about."""
    assert warnings_of(f"{SINGLE}hyperparameters: {{lr: {log}}}") == [f"const.yaml:4: hyperparameters.lr {problem}"]


@pytest.mark.parametrize("log", ["{base: 2, minval: 4, maxval: 10}", "{base: 10, minval: -4, maxval: 0.5}"])
def test_exponents_are_not_suspected(log: str) -> None:
    """Log ranges with usual exponents, as of batch sizes and learning rates, give no warning."""
    assert warnings_of(f"{SINGLE}hyperparameters: {{x: {{type: log, {log[1:]}}}") == []


def test_a_range_made_in_python_is_checked_too() -> None:
    """A range made in Python is checked like one in a file."""
    with pytest.raises(ValueError, match="minval must be less than maxval, 1, and is 3"):
        Int(3, 1)
