"""What was tried already is found before it is tried again."""

from __future__ import annotations

from typing import Any

import pytest
from home.tries import study, trials_of_try

from core_sdk._ground.records import CodeRecord
from core_sdk._home.finding.similar import NewTry, have_like_words, most_alike

COMMAND = ("python", "train.py")


def candidate(**hparams: Any) -> NewTry:
    return NewTry("wider", CodeRecord(sha256="a" * 64, change="c"), COMMAND, hparams)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"code": CodeRecord(sha256="a" * 64)}, "equal"),
        ({"code": CodeRecord(sha256="b" * 64, change="c")}, "same change"),
        ({"code": CodeRecord(sha256="b" * 64), "hypothesis": "Wider!"}, "like words"),
        ({"code": CodeRecord(sha256="b" * 64), "hypothesis": "deeper"}, None),
        ({"code": CodeRecord(sha256="a" * 64, directory="other")}, None),
    ],
)
def test_likeness_has_three_degrees(fields: dict[str, Any], expected: str | None) -> None:
    """The same code, the same change, or a hypothesis in like words."""
    tries = study(trials_of_try(7, [0.8], **({"hypothesis": "deeper"} | fields)))

    found = most_alike(candidate(), tries.by_id.values(), {7: COMMAND})

    assert (None if found is None else found[0]) == expected


def test_other_hyperparameters_and_commands_make_another_try() -> None:
    """Equal code is tried again with other values, or by another command."""
    tries = study(trials_of_try(7, [0.8], hypothesis="deeper", code=CodeRecord(sha256="a" * 64), hparams={"lr": 0.1}))

    assert most_alike(candidate(lr=0.2), tries.by_id.values(), {7: COMMAND}) is None
    assert most_alike(candidate(lr=0.1), tries.by_id.values(), {7: ("python", "other.py")}) is None


def test_the_closest_likeness_counts_and_then_the_newest() -> None:
    """Equal code comes before like words."""
    tries = study(
        trials_of_try(1, [0.8], code=CodeRecord(sha256="a" * 64), hypothesis="deeper"),
        trials_of_try(2, [0.8], code=CodeRecord(sha256="a" * 64), hypothesis="deeper"),
        trials_of_try(3, [0.8], code=CodeRecord(sha256="b" * 64), hypothesis="wider"),
    )

    found = most_alike(candidate(), tries.by_id.values(), {1: COMMAND, 2: COMMAND, 3: COMMAND})

    assert found == ("equal", tries.by_id[2])


@pytest.mark.parametrize(
    ("text", "other", "expected"),
    [
        ("a learning rate of 0.1", "Learning rate: 0.1", True),
        ("a learning rate of 0.1", "a learning rate of 0.2", False),
        ("dropout after the first layer", "dropout after first layer", True),
        ("dropout after the first layer", "dropout before the first layer", False),
        ("", "", False),
    ],
)
def test_words_are_alike_with_the_same_numbers(text: str, other: str, expected: bool) -> None:
    """The order and the articles do not count, numbers do."""
    assert have_like_words(text, other) is expected
