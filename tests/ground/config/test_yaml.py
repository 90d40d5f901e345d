"""YAML as YAML 1.2 reads it, within bounds."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from typing import Any

import pytest
from ground.config.configurations import SINGLE, loaded, problems_of

from core_sdk._ground.config.hyperparameters import Const


def value_of(scalar: str) -> Any:
    """Returns the value of a hyperparameter that is written so."""
    const = loaded(f"{SINGLE}hyperparameters:\n  x: {scalar}\n").hyperparameters.members["x"]
    assert isinstance(const, Const)
    return const.val


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("1e-5", 1e-5),
        ("1E3", 1000.0),
        ("-.5", -0.5),
        ("1.", 1.0),
        ("+5", 5),
        ("010", 10),
        ("0o10", 8),
        ("0x1f", 31),
        ("1_000", 1000),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("yes", "yes"),
        ("off", "off"),
        ("y", "y"),
        ("2026-11-22", "2026-11-22"),
        ("1:30", "1:30"),
        ("1.5.2", "1.5.2"),
        ("1e", "1e"),
        ("'1e-5'", "1e-5"),
        ("=", "="),
        ("[1, a, {b: 2}]", [1, "a", {"b": 2}]),
        ("{}", {}),
    ],
)
def test_a_value_is_read_as_in_yaml_1_2(scalar: str, value: object) -> None:
    """Scalars are read as in YAML 1.2, as the predecessor's command did."""
    read = value_of(scalar)

    assert (type(read), read) == (type(value), value)


def test_nan_is_a_number() -> None:
    """`.nan` is read as the number NaN."""
    assert math.isnan(value_of(".nan"))


def test_a_key_called_on_is_a_string() -> None:
    """A key `on` or `no` is read as a string, and not as true or false of YAML 1.1."""
    assert list(loaded(f"{SINGLE}hyperparameters: {{on: 1, no: 2}}").hyperparameters.members) == ["on", "no"]


def test_anchors_and_merge_keys_are_known() -> None:
    """Anchors and merge keys work, and a key in the map itself has precedence over a merged one."""
    merged = "other: {b: 3, <<: *base, c: 4}, two: {<<: [*base, *base]}"

    data = loaded(f"{SINGLE}data: {{base: &base {{a: 1, b: 2}}, {merged}}}\n").data

    assert data == {"base": {"a": 1, "b": 2}, "other": {"a": 1, "b": 3, "c": 4}, "two": {"a": 1, "b": 2}}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", ": the file is empty"),
        ("# nothing\n", ": the file is empty"),
        ("- a\n", ": the file must be a map"),
        ("a: [1, 2\nb: 3\n", ":2: this is not YAML: did not find expected ',' or ']'"),
        ("a: 1\n\tb: 2\n", ":2: this is not YAML: here is a tab; indent with spaces"),
        ("a: *b\n", ":1: this is not YAML: found undefined alias"),
        ("a: 1\n---\nb: 2\n", ":2: this is not YAML: but found another document"),
        ("a: \x07\n", ": this cannot be read: unacceptable character #x0007: control"),
    ],
)
def test_what_is_not_yaml_is_refused(text: str, problem: str) -> None:
    """A file that is not YAML, or not a map, is refused with the line of the error."""
    assert problems_of(text)[0].startswith(f"const.yaml{problem}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("debug: true\ndebug: false", "const.yaml:5: debug is given twice, first in line 4"),
        ("data: {1: a}", "const.yaml:4: data has a key that is not a string: write it in quotes"),
        ("data: {[1]: a}", "const.yaml:4: data has a key that is not a string: write it in quotes"),
        (f"data: {{a: {2**63}}}", f"const.yaml:4: data.a is {2**63}, which is beyond 64 bits"),
        (
            "data:\n  a: !!python/object/apply:os.system [ls]",
            "const.yaml:5: data.a has the tag python/object/apply:os.system, which configurations do not use",
        ),
        ("data: {a: !!binary aGk=}", "const.yaml:4: data.a has the tag binary, which configurations do not use"),
        ("data: {a: !!int x}", "const.yaml:4: data.a invalid literal for int() with base 10: 'x'"),
    ],
)
def test_what_a_configuration_cannot_hold_is_named(text: str, problem: str) -> None:
    """Content that a configuration cannot hold is named in the error, and nothing is dropped or executed."""
    assert problems_of(f"{SINGLE}{text}\n") == [problem]


def test_a_few_lines_that_stand_for_billions_are_refused_at_once() -> None:
    """Nested aliases that stand for billions of values are refused at once."""
    laughs = "".join(f"  l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]\n" for n in range(1, 12))
    start = time.perf_counter()

    problems = problems_of(f"{SINGLE}data:\n  l0: &l0 ha\n{laughs}")

    assert problems[0] == (
        "const.yaml: this cannot be read: it has more than 100,000 values, counting each alias as what it stands for"
    )
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("data: &a {b: *a}\n", "it is nested more than 50 levels deep"),
        (f"data: {{a: {'[' * 60}{']' * 60}}}\n", "it is nested more than 50 levels deep"),
        (f"description: {'x' * 2**20}\n", "it is longer than 1,048,576 characters"),
    ],
)
def test_what_has_no_bounds_is_refused(text: str, problem: str) -> None:
    """Content that is nested too deeply, recursive or too large is refused."""
    assert problems_of(SINGLE + text)[0] == f"const.yaml: this cannot be read: {problem}"


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_no_nesting_ends_the_process(opening: str) -> None:
    """Input nested 100,000 levels deep is refused, and does not overflow the process's stack."""
    program = (
        "import sys, core_sdk._ground.config as c, core_sdk.errors as e\n"
        "try: c.load(sys.argv[1] * 100_000, source='deep.yaml')\n"
        "except e.InvalidConfigError as error: print('refused')\n"
    )

    result = subprocess.run([sys.executable, "-c", program, opening], capture_output=True, text=True, check=False)

    assert (result.returncode, result.stdout) == (0, "refused\n"), result.stderr[-500:]
