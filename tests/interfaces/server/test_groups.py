"""What the server answers about groups of trials."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from home.journals import START, append, lines, new_trial, record, report
from interfaces.server.visitor import Visitor, target_of

from core_sdk._ground.records import SearcherMetric, TrialLabelsChanged
from core_sdk._home import Home, TrialFolder


@pytest.fixture
def seeds(home: Home) -> list[TrialFolder]:
    """Trials 1 to 4 of two learning rates and two seeds; the loss is lr + seed at each step. Trial 5 has nothing."""
    folders = []
    for lr, seed in ((0.1, 0), (0.1, 1), (0.5, 0), (0.5, 1)):
        folder = new_trial(home, "seeds", optimizer={"lr": lr, "name": "adam"}, seed=seed)
        losses = [report(step, loss=lr + seed) for step in range(1, 6 - seed)]
        record(folder, *losses, report(4, "validation", accuracy=lr + seed))
        folders.append(folder)
    folders.append(new_trial(home, "seeds", optimizer={"lr": 0.1, "name": "adam"}, seed=2))
    return folders


@pytest.fixture
def visitor(home: Home, seeds: list[TrialFolder]) -> Iterator[Visitor]:
    with_seeds = Visitor(home)
    yield with_seeds
    with_seeds.close()


def test_seeds_become_one_curve(visitor: Visitor) -> None:
    """Each point says how many trials are in it: a trial that has ended is not continued."""
    answer = visitor.question("/groups", experiment=1, by="optimizer.lr", metrics="training.loss", band="range")

    assert [(one["values"], one["trials"]) for one in answer["groups"]] == [([0.1], [1, 2, 5]), ([0.5], [3, 4])]
    first, second = answer["charts"][0]["curves"]
    assert (first["group"], first["join"], first["width"], first["x"]) == (0, "common", 1, [1, 2, 3, 4, 5])
    assert first["num_trials"] == [2, 2, 2, 2, 1]
    assert first["centre"] == pytest.approx([0.6, 0.6, 0.6, 0.6, 0.1])
    assert (second["low"][0], second["high"][0]) == (0.5, 1.5)


def test_the_searcher_says_which_trial_is_best(visitor: Visitor, home: Home) -> None:
    """The best trial of a group is chosen by the request, the searcher's metric or the first metric."""
    default = visitor.question("/groups", experiment=1, by=["optimizer.lr"])
    with home.find_or_create_experiment("seeds").edit() as edited:
        edited.searcher_metric = SearcherMetric(name="accuracy", smaller_is_better=False)
    searched = visitor.question("/groups", experiment=1, by=["optimizer.lr"])
    asked = visitor.question("/groups", experiment=1, by=["optimizer.lr"], best="min.training.loss")

    assert [one["best"] for one in default["groups"]] == [1, 3]
    assert (searched["best_by"], [one["best"] for one in searched["groups"]]) == ("max.validation.accuracy", [2, 4])
    assert [one["best_value"] for one in searched["groups"]] == [1.1, 1.5]
    assert (asked["best_by"], [one["best"] for one in asked["groups"]]) == ("min.training.loss", [1, 3])


def test_several_keys_and_labels_make_groups(visitor: Visitor, seeds: list[TrialFolder]) -> None:
    """Several keys and labels form groups, and trials without a value are a group of their own."""
    for folder in seeds[:2]:
        append(folder, 0, lines(TrialLabelsChanged(time=1.0, added=["paper", "base"])))

    answer = visitor.question("/groups", trials=[1, 2, 3], by=["label", "optimizer.name"])

    assert [(one["values"], one["trials"]) for one in answer["groups"]] == [
        (["base, paper", "adam"], [1, 2]), ([None, "adam"], [3]),
    ]  # fmt: skip
    assert answer["names"] == ["optimizer.lr", "seed", "label", "experiment", "state", "optimizer.name"]
    assert answer["metrics"] == ["validation.accuracy", "training.loss"]


def test_a_report_is_in_the_next_answer(visitor: Visitor, seeds: list[TrialFolder]) -> None:
    """A new report is in the next answer, and superseded points are not."""
    question = {"trials": [1, 2], "by": "optimizer.lr", "metrics": "training.loss"}
    visitor.question("/groups", **question)

    record(seeds[0], report(3, attempt=2, loss=7.1), attempt=2, resumed_steps=2)
    (curve,) = visitor.question("/groups", **question)["charts"][0]["curves"]

    assert curve["x"] == [1, 2, 3, 4]
    assert curve["centre"] == pytest.approx([0.6, 0.6, 4.1, 1.1])
    assert curve["num_trials"] == [2, 2, 2, 1]


@pytest.fixture
def speeds(home: Home, seeds: list[TrialFolder]) -> list[int]:
    """Two trials of one group, whose reports take 1 s and 1.3 s. The loss is the step; tokens go in thousands."""
    folders = [new_trial(home, "speeds") for _ in range(2)]
    for folder, seconds in zip(folders, (1.0, 1.3), strict=True):
        reports = (report(step, loss=step, tokens=1000 * step, epochs=step / 100) for step in range(1, 1001))
        record(folder, *(msgspec.structs.replace(one, time=START + seconds * one.steps_completed) for one in reports))
    return [folder.trial_id for folder in folders]


def test_groups_are_drawn_over_time_epochs_and_metrics(visitor: Visitor, speeds: list[int]) -> None:
    """Groups can be drawn over steps, time, epochs and metrics."""
    question = {"trials": speeds, "by": "experiment", "metrics": "training.loss", "points": 200, "band": "none"}

    charts = {
        x: visitor.question("/groups", x=x, **question)["charts"][0]
        for x in ("time", "epochs", "training.tokens", "training.speed")
    }

    (over_time,) = charts["time"]["curves"]
    ended = over_time["num_trials"].index(1)
    assert (over_time["x"][-1], over_time["join"], over_time["width"]) == (1300, "bins", 8)
    assert over_time["num_trials"] == [2] * ended + [1] * (len(over_time["x"]) - ended)
    assert over_time["x"][ended - 1] == pytest.approx(1000, abs=8)
    for x, centre in zip(over_time["x"][:ended], over_time["centre"][:ended], strict=True):
        assert centre == pytest.approx((x + x / 1.3) / 2, abs=8)
    for name, scale in (("epochs", 1 / 100), ("training.tokens", 1000)):
        (curve,) = charts[name]["curves"]
        assert curve["join"] == "common"
        assert curve["x"] == pytest.approx([scale * centre for centre in curve["centre"]], abs=6 * scale)
    assert charts["training.speed"] == {"metric": "training.loss", "curves": []}


@pytest.mark.parametrize(("x", "scale"), [("steps", 1), ("time", 1.3), ("training.tokens", 1000)])
def test_groups_are_finer_between_two_places(visitor: Visitor, speeds: list[int], x: str, scale: float) -> None:
    """A range of a group's curve can be refined without losing points elsewhere."""
    question = {"trials": speeds[1:], "by": "experiment", "metrics": "training.loss", "x": x, "points": 20}

    def curve(first: float, last: float) -> dict[str, Any]:
        (found,) = visitor.question("/groups", finer_from=first * scale, finer_to=last * scale, **question)["charts"][
            0
        ]["curves"]
        return dict(found)

    (whole,) = visitor.question("/groups", **question)["charts"][0]["curves"]
    finer = curve(500, 503)
    centres = finer["centre"]

    assert set(range(500, 504)) <= set(centres)
    assert centres == sorted(centres)
    assert finer["x"] == sorted(finer["x"])
    assert (centres[:3], centres[-3:]) == (whole["centre"][:3], whole["centre"][-3:])
    assert len(centres) > len(whole["centre"])
    assert curve(2000, 3000) == curve(3000, 2000) == curve(-1e15, 1e15) == whole


@pytest.mark.parametrize(
    ("query", "status", "kind"),
    [
        ({"trials": 4711}, 404, "trial_not_found"),
        ({"experiment": 1, "by": "optimiser.lr"}, 400, "unknown_name"),
        ({"experiment": 1, "by": "seed", "metrics": "training.los"}, 400, "unknown_name"),
        ({"experiment": 1, "by": "seed", "best": "accuracy"}, 400, "bad_value"),
        ({"experiment": 1, "by": "seed", "band": "wide"}, 400, "bad_parameter"),
        ({"experiment": 1, "by": "seed", "x": "years"}, 400, "bad_parameter"),
        ({"experiment": 1, "by": "seed", "finer_from": "nan"}, 400, "bad_parameter"),
    ],
)
def test_a_mistake_is_named(visitor: Visitor, query: dict[str, object], status: int, kind: str) -> None:
    """A mistake in the request is answered with its kind."""
    answer = visitor.get(target_of("/groups", **query))

    assert (answer.status, answer.problem) == (status, kind)


def test_no_trials_have_no_groups(visitor: Visitor) -> None:
    """A question about no trials has no groups."""
    assert visitor.question("/groups", by="seed")["groups"] == []
