"""Trials with very many metrics, and many trials at once: what is asked of them is found, and is read only once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from home.journals import new_trial, record, report
from interfaces.server.visitor import Visitor

from core_sdk._home import Home
from core_sdk._home.index import Index


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often each of these questions has been asked of the index."""
    counts: Counter[str] = Counter()
    for name in ("outline", "figures", "buckets"):
        original = getattr(Index, name)

        def count(self: Index, *args: Any, _name: str = name, _original: Any = original, **kwargs: Any) -> Any:
            counts[_name] += 1
            return _original(self, *args, **kwargs)

        monkeypatch.setattr(Index, name, count)
    yield counts


def layers(number: int) -> dict[str, Any]:
    return {f"layer{index}": 1.0 for index in range(number)}


def test_the_names_are_those_of_the_trials_that_are_asked_for(home: Home) -> None:
    """However many another trial has; those of validations come first, and then those that most trials have."""
    other, one, two = (new_trial(home) for _ in range(3))
    record(other, report(1, **layers(2000)))
    record(one, report(1, loss=1.0, lr=0.1), report(1, "validation", accuracy=0.5))
    record(two, report(1, lr=0.1))
    visitor = Visitor(home)

    found = visitor.question("/metrics", trials=[one.trial_id, two.trial_id])
    page = visitor.question("/metrics", trials=other.trial_id, cursor=1000)
    whole = visitor.question("/metrics", trials=other.trial_id, limit=100_000)
    visitor.close()

    assert found == {
        "names": ["validation.accuracy", "training.lr", "training.loss"],
        "num_found": 3,
        "next": None,
    }
    assert (page["names"][0], len(page["names"]), page["num_found"], page["next"]) == (
        "training.layer1000", 1000, 2000, None,
    )  # fmt: skip
    assert len(whole["names"]) == 2000


def test_the_names_of_a_rank_are_those_that_it_has_reported(home: Home) -> None:
    """Other ranks' names are left out."""
    folder = new_trial(home)
    record(folder, report(1, loss=1.0))
    record(folder, report(1, loss=2.0, speed=1.0), rank=1)
    visitor = Visitor(home)

    names = [
        visitor.question("/metrics", trials=folder.trial_id, **of)["names"] for of in ({}, {"rank": 0}, {"rank": 1})
    ]
    visitor.close()

    assert names == [
        ["training.loss", "training.speed"],
        ["training.loss"],
        ["training.loss", "training.speed"],
    ]


def test_a_question_about_one_metric_does_not_read_all_others(home: Home, asked: Counter[str]) -> None:
    """The names and figures of a trial are read once, as long as nothing more is recorded of it."""
    folder = new_trial(home)
    record(folder, report(1, **layers(3000)))
    visitor = Visitor(home)
    asked.clear()

    for index in range(5):
        (curve,) = visitor.question(f"/trials/{folder.trial_id}/metrics", names=f"training.layer{index}")["curves"]
        assert curve["name"] == f"layer{index}"
    visitor.question(f"/trials/{folder.trial_id}")
    visitor.close()

    assert (asked["outline"], asked["figures"]) == (1, 0)


def test_the_curves_of_a_hundred_trials_are_found_again(home: Home, asked: Counter[str]) -> None:
    """In several charts, until more is recorded: then those of that trial are read again."""
    folders = [new_trial(home) for _ in range(100)]
    for folder in folders:
        record(folder, report(1, loss=1.0, lr=0.1, accuracy=0.5))
    trials = [folder.trial_id for folder in folders]
    visitor = Visitor(home)

    def ask() -> int:
        asked.clear()
        for name in ("loss", "lr", "accuracy"):
            visitor.question("/comparison/metrics", trials=trials, names=f"training.{name}")
        return asked["buckets"]

    first, again = ask(), ask()
    record(folders[7], report(2, loss=0.5), attempt=2, resumed_steps=1)
    afterwards = ask()
    visitor.close()

    assert (first, again, afterwards) == (300, 0, 3)


def test_columns_are_those_of_the_trials_that_fit(visitor: Visitor, home: Home) -> None:
    """Names keep the meaning that they have among all; columns that are named are answered in any case."""
    for lr in (0.5, 0.25):
        record(new_trial(home, "other", lr=lr, width=8, depth=3), report(1, "test", score=lr))

    def names(**query: object) -> list[str]:
        found = visitor.question("/columns", **query)["columns"]
        return [one["name"] for one in found if one["kind"] != "field"]

    listed = names(where="experiment=other")
    by_text = names(containing="depth")
    named = names(where="experiment=other", names=["training.loss"])
    nothing = names(where="lr>100")

    assert sorted(listed) == ["depth", "lr", "test.score", "width"]
    assert sorted(by_text) == sorted(listed)
    assert sorted(named) == sorted([*listed, "training.loss"])
    assert sorted(nothing) == sorted(names())
    assert visitor.get("/api/v1/columns?where=lr>").problem == "bad_condition"


def test_a_hyperparameter_varies_if_trials_of_one_experiment_differ(home: Home) -> None:
    """Not if only experiments differ in it, or only one has it."""
    for seed in (1, 2):
        new_trial(home, "narrow", width=8, seed=seed, lr=0.1)
        new_trial(home, "wide", width=64, seed=7, depth=3, **({"warmup": 5} if seed == 1 else {}))
    visitor = Visitor(home)

    answer = visitor.question("/columns")
    visitor.close()

    varying = {one["name"] for one in answer["columns"] if one["varies"]}
    assert varying == {"seed", "warmup"}
    assert answer["num_experiments"] == 2
