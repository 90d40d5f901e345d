"""Groups of trials from Python."""

from __future__ import annotations

import math

import pytest
from home.journals import START, new_trial, record, report
from msgspec import structs

from core_sdk import client
from core_sdk._ground.records import SearcherMetric
from core_sdk._home import Home
from core_sdk.errors import NothingToDrawError, NotRecordedError, TrialNotFoundError


@pytest.fixture
def seeds(home: Home) -> None:
    """Trials 1 to 4: two learning rates and two seeds. The loss is lr + seed; seed 1 ends one step earlier."""
    for lr, seed in ((0.5, 0), (0.5, 1), (0.25, 0), (0.25, 1)):
        losses = [report(step, "validation", loss=lr + seed) for step in range(1, 4 - seed)]
        record(new_trial(home, "seeds", optimizer={"lr": lr}, seed=seed), *losses)


@pytest.mark.usefixtures("seeds")
def test_trials_are_compared_in_groups(home: Home) -> None:
    """Each group has its mean, its deviation and its best trial, and is a row of a frame."""
    with home.find_or_create_experiment("seeds").edit() as edited:
        edited.searcher_metric = SearcherMetric(name="loss", smaller_is_better=False)

    comparison = client.compare(experiment="seeds", group_by=["optimizer.lr"])

    first, second = comparison.groups
    assert (first.values, first.trial_ids) == ({"optimizer.lr": 0.25}, [3, 4])
    assert (comparison.best_by, first.best_trial_id, first.best_value) == ("max.validation.loss", 4, 1.25)
    assert second.metrics["validation.loss"].mean == 1.0
    assert comparison.frame() == {
        "optimizer.lr": [0.25, 0.5],
        "num_trials": [2, 2],
        "best_trial_id": [4, 2],
        "best_value": [1.25, 1.5],
        "validation.loss.mean": [0.75, 1.0],
        "validation.loss.std": [pytest.approx(math.sqrt(0.5))] * 2,
        "validation.loss.count": [2, 2],
    }
    assert client.compare([1, 2], group_by=["seed"], best="min.loss").groups[0].best_trial_id == 1


@pytest.mark.usefixtures("seeds")
def test_the_curve_of_a_group_says_how_many_trials_are_in_it() -> None:
    """Frames and pictures of grouped curves have the number of trials at each step."""
    comparison = client.compare([1, 2], group_by=["optimizer.lr"])

    columns = comparison.curves_frame("validation.loss", band="range")
    picture = comparison.plot(["loss"], band="sem")

    assert columns == {
        "optimizer.lr": [0.5] * 3,
        "steps_completed": [1, 2, 3],
        "centre": [1.0, 1.0, 0.5],
        "low": [0.5, 0.5, 0.5],
        "high": [1.5, 1.5, 0.5],
        "num_trials": [2, 2, 1],
        "join": ["common"] * 3,
    }
    assert "validation.loss: mean and standard error by optimizer.lr, at common steps" in picture.svg
    assert "optimizer.lr 0.5 (n = 1 to 2)" in picture.svg


def test_curves_are_over_time_or_a_metric_too(home: Home) -> None:
    """The column is named after it; the trials have no time in common, but all tokens."""
    for seconds in (1.0, 1.5):
        reports = (report(step, loss=step, tokens=1000 * step) for step in range(1, 101))
        timed = (structs.replace(one, time=START + seconds * one.steps_completed) for one in reports)
        record(new_trial(home, "speeds", lr=0.5), *timed)
    comparison = client.compare(experiment="speeds", group_by=["lr"])

    over_time = comparison.curves_frame("training.loss", x="time")
    over_tokens = comparison.curves_frame("training.loss", x="tokens")
    picture = comparison.plot(["loss"], x="time")
    of_trial = client.get_trial(2).plot(["loss"], x="time")

    assert (set(over_time["join"]), over_time["time_s"][-1], over_time["num_trials"][-1]) == ({"bins"}, 150.0, 1)
    assert (over_tokens["tokens"][:2], set(over_tokens["num_trials"])) == ([1000, 2000], {2})
    assert "by lr, in bins of seconds since the start" in picture.svg
    assert of_trial.charts[0].step_range == (1.5, 150.0)
    assert not any(comparison.curves_frame("training.loss", x="epochs").values())
    with pytest.raises(NotRecordedError, match="accuracy"):
        comparison.curves_frame("training.loss", x="accuracy")
    with pytest.raises(NothingToDrawError, match="epochs"):
        comparison.plot(x="epochs")


@pytest.mark.usefixtures("seeds")
def test_a_mistake_in_a_comparison_is_named() -> None:
    """A mistake in a comparison is named before anything is drawn."""
    with pytest.raises(ValueError, match=r"did you mean optimizer\.lr"):
        client.compare([1], group_by=["optimiser.lr"])
    with pytest.raises(ValueError, match="either trial_ids or an experiment"):
        client.compare(group_by=["seed"])
    with pytest.raises(TrialNotFoundError):
        client.compare([9], group_by=["seed"])
    with pytest.raises(NotRecordedError, match="accuracy"):
        client.compare([1], group_by=["seed"]).plot(["accuracy"])
    with pytest.raises(ValueError, match="no regular expression"):
        client.compare([1], group_by=["seed"]).plot(["/(/"])
