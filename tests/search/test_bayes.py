"""Points that a model of the results so far chooses."""

from __future__ import annotations

import math
import random
import statistics
from typing import Any
from uuid import UUID

import pytest
from search.searches import SEED, SPACE, asha

from core_sdk._ground.config import from_mapping
from core_sdk._ground.config.hyperparameters import Categorical, Const, Double, HyperparameterSpace, Int, Log
from core_sdk._ground.config.lengths import Length
from core_sdk._ground.config.searchers import AsyncHalvingSearcher
from core_sdk.search import AskTell, Create, Search
from core_sdk.search._bayes._axes import Axes
from core_sdk.search._bayes._points import ModelledPoints, fitted_number, reflected
from core_sdk.search._bayes._regression import NOISE, Regression
from core_sdk.search._bayes._targets import RungResult, targets
from core_sdk.search._points import SampledPoints
from core_sdk.search._preview import preview
from core_sdk.search._scores import EXITED, Score
from core_sdk.search.simulation import simulate

SEEDS = range(5)
ONE, TWO, THREE = (UUID(int=number) for number in range(1, 4))
PLANTED = HyperparameterSpace(
    {
        "decay": Log(base=10.0, minval=-5.0, maxval=-1.0),
        "layers": Int(minval=1, maxval=6),
        "lr": Log(base=10.0, minval=-4.0, maxval=0.0),
        "optimizer": HyperparameterSpace(
            {
                "momentum": Double(minval=0.0, maxval=1.0),
                "name": Categorical(("adam", "sgd", "lamb")),
                "nesterov": Const(True),
            }
        ),
    }
)


def planted_loss(hparams: dict[str, Any]) -> float:
    """Returns a loss that is 0 at a learning rate of 0.01, a decay of 0.001, 4 layers, a momentum of 0.7 and sgd."""
    return float(
        (math.log10(hparams["lr"]) + 2) ** 2 / 4
        + (math.log10(hparams["decay"]) + 3) ** 2 / 8
        + (hparams["layers"] - 4) ** 2 / 20
        + (hparams["optimizer"]["momentum"] - 0.7) ** 2
        + (hparams["optimizer"]["name"] != "sgd") * 0.3
    )


def planted_curve(create: Create, length: int) -> float:
    return planted_loss(create.hparams) + 1 / length


def taught(space: HyperparameterSpace, number: int) -> ModelledPoints:
    """Returns points that were made and observed this number of times."""
    points = ModelledPoints(space, SEED)
    for _ in range(number):
        create = points.next()
        points.observe(create.request_id, 0, (0, planted_loss(create.hparams)))
    return points


def test_the_model_is_fitted_often_at_first_and_then_seldom() -> None:
    """The series of fits is 5, 6, ... and grows by 2 % later; it does not depend on where one enters it."""
    series = [fitted_number(number, 0) for number in (5, 6, 99, 100, 101, 102, 152)]

    assert series == [5, 6, 99, 100, 100, 102, 150]
    assert fitted_number(152, 100) == 150
    assert fitted_number(10_000, 0) == fitted_number(10_000, fitted_number(4_000, 0))


def test_a_step_over_the_edge_is_thrown_back() -> None:
    """A coordinate stays within 0 and 1, without 1."""
    assert [reflected(0.25), reflected(-0.25), reflected(1.25)] == [0.25, 0.25, 0.75]
    assert [reflected(1.0), reflected(3.5), reflected(2.0)] == [1 - 2**-20, 0.0, 0.0]


def test_results_of_all_rungs_are_compared() -> None:
    """What trials gain between two rungs is taken off, so that a trial that was trained longer is not better for it."""
    results = [
        RungResult(ONE, 1, (0, 0.5)),
        RungResult(TWO, 1, (0, 0.7)),
        RungResult(THREE, 1, (0, 0.9)),
        RungResult(ONE, 0, (0, 0.2)),
    ]

    one, two, three, one_above = targets(results)

    assert one == pytest.approx(one_above)
    assert one > two > three
    assert one + two + three + one_above == pytest.approx(0)


@pytest.mark.parametrize("score", [EXITED, (1, 0.0)])
def test_a_failed_trial_is_among_the_worst(score: Score) -> None:
    """A trial that failed or diverged is as bad as the quarter that is worst, however bad that is."""
    numbers = [(0, 0.1), (0, 0.2), (0, 0.3), (0, 0.4), (0, 1e300)]
    results = [RungResult(UUID(int=index), 0, one) for index, one in enumerate([*numbers, score])]

    *_, fourth, fifth, failed = targets(results)

    assert fourth == fifth == failed
    assert targets([RungResult(ONE, 0, score)]) == [0.0]
    assert targets([RungResult(ONE, 0, (0, 3.0)), RungResult(TWO, 0, (0, 3.0))]) == [0.0, 0.0]


def test_features_of_a_point() -> None:
    """A number is an axis from -1 to 1; of three values each has an axis; at a lower rung there are more features."""
    axes = Axes([Double(minval=0.0, maxval=8.0), Categorical(("a", "b", "c"))])
    point = axes.snapped([0.75, 0.4])

    features = axes.features(point, 0)

    assert point == [0.75, 0.5]
    assert features[:5] == pytest.approx([1, 0.5, -1 / 3, 2 / 3, -1 / 3])
    assert features[5:9] == pytest.approx([0.75 * (value**2 - 1 / 3) for value in features[1:5]])
    assert features[9] == pytest.approx(0.3 * 0.5 * -1 / 3)
    assert len(features) == 1 + 4 + 4 + 6
    assert axes.features(point, 2)[: len(features)] == features
    assert len(axes.features(point, 2)) == axes.num_features == len(features) + 1 + 4 + 4


def test_a_large_space_has_few_features() -> None:
    """The number of features grows with the number of hyperparameters, not with its square; many values are none."""
    counts = [Axes([Double(minval=0.0, maxval=1.0)] * number).num_features for number in (12, 13, 31)]

    assert counts == [1 + 24 + 66 + 25, 1 + 26 + 27, 1 + 31]
    assert Axes([Categorical(tuple(range(17))), Categorical(("only",))]).num_features == 2


def test_a_regression_is_as_sure_as_its_results_allow() -> None:
    """With one weight the posterior is that of the textbook; a draw is around its mean."""
    regression = Regression(1)
    for _ in range(3):
        regression.add([2.0])

    posterior = regression.posterior([1.0, 2.0, 3.0])

    precision = 1 + 3 * 4 / NOISE
    assert posterior.mean == pytest.approx([12 / NOISE / precision])
    assert posterior.factor == [pytest.approx([math.sqrt(precision)])]
    assert posterior.draw(random.Random(0)) == pytest.approx(posterior.mean, abs=1)


def test_a_regression_finds_the_weights_of_a_function() -> None:
    """Many results of a weighted sum, without noise, give its weights back."""
    rng = random.Random(1)
    regression, weights, values = Regression(3), [0.5, -1.0, 2.0], []
    for _ in range(500):
        features = [rng.uniform(-1, 1) for _ in weights]
        regression.add(features)
        values.append(math.fsum(map(float.__mul__, features, weights)))

    assert regression.posterior(values).mean == pytest.approx(weights, abs=0.01)


def test_the_first_points_are_those_of_a_random_search() -> None:
    """Until there are five results, the points are the same as those of the sampler `random`."""
    chosen, random_ones = ModelledPoints(SPACE, SEED), SampledPoints(SPACE, SEED)

    for _ in range(5):
        create = chosen.next()
        assert create == random_ones.next()
        chosen.observe(create.request_id, 0, (0, 0.5))

    assert chosen.next() != random_ones.next()


def test_every_machine_chooses_the_same_point() -> None:
    """The coordinates that a model chooses are the same to the last bit, on every machine and version of Python."""
    points = ModelledPoints(PLANTED, SEED)
    for _ in range(40):
        request_id = points.next().request_id
        first, *_, last = points.encode()["made"][str(request_id)]
        points.observe(request_id, 0, (0, (first - 0.25) * (first - 0.25) + last))

    create = points.next()

    assert [value.hex() for value in points.encode()["made"][str(create.request_id)]] == [
        "0x1.9be181efffe06p-2",
        "0x1.5555555555555p-4",
        "0x1.e9e3c9aa8bdeep-1",
        "0x1.b03927f204d70p-9",
        "0x1.5555555555555p-3",
    ]


def test_points_go_on_from_their_state() -> None:
    """Points that are made anew from their state choose what the old ones would have chosen."""
    old, new = taught(PLANTED, 30), ModelledPoints(PLANTED, SEED)
    new.decode(old.encode())
    new.num_made = old.num_made

    assert [old.next() for _ in range(5)] == [new.next() for _ in range(5)]


def test_a_space_without_ranges_has_nothing_to_choose() -> None:
    """A space of constants gives the same hyperparameters each time."""
    points = ModelledPoints(HyperparameterSpace({"lr": Const(0.1)}), SEED)

    for _ in range(7):
        create = points.next()
        points.observe(create.request_id, 0, (0, 0.5))
        assert create.hparams == {"lr": 0.1}


def test_a_model_finds_the_optimum_with_far_fewer_trainings_than_chance() -> None:
    """With 80 trials a model comes twice as near to a planted optimum as chance with 400, in the median of searches."""
    by_model = [
        best(asha("promotion", max_trials=80, sampler="bayes", max_concurrent_trials=4), seed) for seed in SEEDS
    ]
    by_chance = [best(asha("promotion", max_trials=400, max_concurrent_trials=4), seed) for seed in SEEDS]

    assert statistics.median(by_model) < statistics.median(by_chance) / 2


def best(searcher: AsyncHalvingSearcher, seed: int) -> float:
    simulation = simulate(Search(searcher, PLANTED, seed), planted_curve, validations=[4, 16, 64, 256])
    return min(planted_loss(trial.create.hparams) for trial in simulation.trials)


def test_a_loop_of_ones_own_may_use_the_model() -> None:
    """AskTell takes `sampler: bayes`, and a study that goes on from its state after each report does the same."""
    searcher = {"name": "adaptive_asha", "metric": "loss", "max_trials": 20, "max_length": 16, "sampler": "bayes"}
    config = {
        "searcher": searcher | {"max_concurrent_trials": 1},
        "hyperparameters": {"lr": {"loguniform": [1e-4, 1]}, "layers": 3},
    }
    study, restarted = AskTell(config), AskTell(config)

    while (trial := study.ask()) is not None:
        twin = restarted.ask()
        assert twin == trial
        for one, told in ((study, trial), (restarted, twin)):
            one.tell(told, abs(math.log10(told.hparams["lr"]) + 2) + 1 / (told.until or 1))
        restarted = AskTell(config, restarted.state())

    assert study.best is not None
    assert study.best == restarted.best
    assert 0.004 < study.best.hparams["lr"] < 0.025


def test_a_search_by_a_model_can_be_previewed() -> None:
    """A preview simulates the search with the model."""
    searcher = {"name": "asha", "metric": "loss", "max_trials": 16, "num_rungs": 2, "max_length": 8}
    values = {"entrypoint": "true", "hyperparameters": {"lr": {"type": "double", "minval": 0, "maxval": 1}}}
    config = from_mapping(values | {"searcher": searcher | {"sampler": "bayes"}}, is_new=True).config

    shown = preview(config)

    assert config.searcher == AsyncHalvingSearcher(
        metric="loss", max_trials=16, num_rungs=2, max_length=Length(8), sampler="bayes"
    )
    assert shown.num_trials == 16
