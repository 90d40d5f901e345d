"""Conditions of `trial list --where`: what they mean, and what is said of a mistake."""

from __future__ import annotations

import re
from typing import Any

import pytest
from home.journals import new_trial

from core_sdk._home import Home, open_view
from core_sdk._home.finding.facts import field_of, problem_with, read_facts
from core_sdk._home.finding.where import ConditionError, parse_condition

TRIAL: dict[str, Any] = {
    "id": 3,
    "state": "COMPLETED",
    "label": ("fast", "Good"),
    "lr": 0.01,
    "model.layers": 2,
    "optimizer": "adam",
    "amp": True,
    "val/acc": 0.9,
    "my metric": 1.5,
    "nan": float("nan"),
}


@pytest.mark.parametrize(
    "text",
    [
        "lr=0.01",
        "lr == 1e-2",
        "lr<0.1 and lr<=0.01 and lr>0.001 and lr>=0.01",
        "lr!=0.1",
        "model.layers = 2.0",
        "optimizer=adam",
        'optimizer = "Adam"',
        "optimizer != 'sgd'",
        "state=completed",
        "amp=true",
        "label=good and label != slow",
        "label contains OOD and not label contains slow and optimizer contains 'da' and not lr contains 0",
        "val/acc>0.5",
        '"my metric" > 1',
        "not lr=0.1",
        "lr=1 or lr=0.01",
        "(lr=1 or lr=0.01) and not (state=ERROR)",
        "lr=0.01 or lr=1 and lr=2",
        "NOT lr=1 AND amp=true",
        "not unknown=1",
    ],
)
def test_a_condition_that_holds(text: str) -> None:
    """`and` binds closer than `or`, `not` closer than both; letter case does not matter in text."""
    assert parse_condition(text).holds(TRIAL.get)


@pytest.mark.parametrize(
    "text",
    [
        "lr=0.1",
        "(lr=0.01 or lr=1) and lr=2",
        "unknown=1",
        "unknown!=1",
        "lr=adam",
        "optimizer>1",
        "amp=1",
        "label=go",
        "nan=nan",
        "optimizer='adam '",
    ],
)
def test_a_condition_that_does_not_hold(text: str) -> None:
    """A comparison with a missing value or one of another type is false."""
    assert not parse_condition(text).holds(TRIAL.get)


def test_the_names_in_a_condition_are_known_with_their_places() -> None:
    """A parsed condition knows the position of each name, so that errors can point at it."""
    assert parse_condition("lr>1 and (b=2 or 'a b'=lr)").names == {"lr": 0, "b": 10, "a b": 17}


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("", 0, "a name is missing"),
        ("lr", 2, "an operator (= != < <= > >= contains) is missing"),
        ("lr 0.01", 3, "an operator (= != < <= > >= contains) is missing"),
        ("lr >", 4, "a value is missing"),
        ("lr > and b=1", 5, "a value is missing"),
        ("lr>1 b=2", 5, "`and` or `or` is missing"),
        ("lr>1 and", 8, "a name is missing"),
        ("(lr>1", 5, "a `)` is missing"),
        ("lr>1)", 4, "`and` or `or` is missing"),
        ("lr='a", 3, "the closing quote is missing"),
        ("lr ! 1", 3, "an operator (= != < <= > >= contains) is missing"),
    ],
)
def test_a_mistake_is_pointed_at(text: str, place: int, problem: str) -> None:
    """A syntax error points at its position and says what is missing."""
    with pytest.raises(ConditionError) as raised:
        parse_condition(text)

    assert raised.value.place == place
    assert str(raised.value) == f"{problem}\n  {text}\n  {' ' * place}^"


def test_nesting_has_an_end() -> None:
    """A condition may be nested 50 levels deep and no deeper, to protect the stack."""
    assert parse_condition("(" * 50 + "id=1" + ")" * 50).holds({"id": 1}.get)
    for text in ("(" * 51 + "id=1" + ")" * 51, "not " * 51 + "id=1", "(" * 5000):
        with pytest.raises(ConditionError, match="more than 50 levels"):
            parse_condition(text)


@pytest.mark.parametrize(
    ("text", "problem", "place"),
    [
        ("lr = 1 and state=COMPLETE", "state is never 'COMPLETE', but one of ACTIVE, ", 17),
        ("trial.state != done", "trial.state is never 'done'", 15),
        ("verdict = good", "verdict is never 'good', but one of keep, discard, \"\"", 10),
        ("archived = 1", "archived is never 1, but one of true, false", 11),
        ("rate = 1", "no trial has a hyperparameter or a metric 'rate'", 0),
    ],
)
def test_a_value_that_a_field_never_has_is_a_mistake(home: Home, text: str, problem: str, place: int) -> None:
    """A name that means nothing, and a value outside the few that a field can have, are named with their places."""
    new_trial(home, lr=1, mode="COMPLETE")
    with open_view(home) as view:
        found = read_facts(view, view.trials())

    def check(condition: str) -> None:
        parse_condition(condition).check(lambda name: problem_with(name, found), lambda name: field_of(name, found))

    with pytest.raises(ConditionError, match=re.escape(problem)) as raised:
        check(text)
    assert raised.value.place == place
    check("state=completed or state contains COMP or mode=COMPLETE or verdict=keep or verdict = '' or archived = TRUE")
