"""Optuna's samplers and pruners as search methods."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest

from core_sdk._ground.config.hyperparameters import Categorical, Const, Double, Hyperparameter, Int, Log
from core_sdk.errors import InvalidConfigError
from core_sdk.search import Create, CustomSearch, Event, ExitedReason, Operation, Shutdown
from core_sdk.search.optuna import OptunaSearch, distribution_of
from core_sdk.search.simulation import TrialExit, simulate

SPACE = {
    "lr": {"loguniform": [1e-4, 1e-1]},
    "optimizer": {"name": {"type": "categorical", "vals": ["sgd", ["adam", 0.9]]}, "nesterov": True},
    "layers": {"type": "int", "minval": 1, "maxval": 4},
}
SAMPLERS: dict[str, Callable[[], optuna.samplers.BaseSampler]] = {
    "TPE": lambda: optuna.samplers.TPESampler(seed=1),
    "TPE of groups": lambda: optuna.samplers.TPESampler(seed=1, multivariate=True, constant_liar=True),
    "random": lambda: optuna.samplers.RandomSampler(seed=1),
    "NSGA-II": lambda: optuna.samplers.NSGAIISampler(seed=1, population_size=6),
}
PRUNERS: dict[str, Callable[[], optuna.pruners.BasePruner]] = {
    "median": lambda: optuna.pruners.MedianPruner(n_startup_trials=2),
    "halving": lambda: optuna.pruners.SuccessiveHalvingPruner(min_resource=2, reduction_factor=2),
    "hyperband": lambda: optuna.pruners.HyperbandPruner(min_resource=2, max_resource=20, reduction_factor=3),
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Optuna logs every study."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


def curve(create: Create, length: int) -> float:
    """Returns losses that are best at a learning rate of 0.01; some trials fail or diverge."""
    fate = create.request_id.int % 20
    if length >= 4 and fate == 0:
        raise TrialExit(ExitedReason.ERRORED)
    if length >= 4 and fate == 1:
        raise TrialExit(ExitedReason.INVALID_HP)
    if length >= 8 and fate == 2:
        return math.nan
    return float(abs(math.log10(create.hparams["lr"] / 0.01)) + create.hparams["layers"] / 10 + 1 / length)


def search_of(sampler: str = "TPE", pruner: str = "median", **arguments: Any) -> OptunaSearch:
    fields: dict[str, Any] = {"max_trials": 30, "max_concurrent_trials": 4, "max_length": 20, "period": 2}
    return OptunaSearch(SPACE, sampler=SAMPLERS[sampler](), pruner=PRUNERS[pruner](), **fields | arguments)


@pytest.mark.parametrize("pruner", PRUNERS)
@pytest.mark.parametrize("max_length", [20, None])
def test_a_study_trains_its_trials_and_prunes_the_bad_ones(pruner: str, max_length: int | None) -> None:
    """A study trains its trials and prunes the bad ones, whether the search or the script determines the lengths."""
    method = search_of(pruner=pruner, max_length=max_length, period=2 if max_length else None)

    simulation = simulate(CustomSearch(method), curve, validations=range(2, 21, 2))

    lengths = [trial.length for trial in simulation.trials]
    num_invalid = sum(trial.reason is ExitedReason.INVALID_HP for trial in simulation.trials)
    assert simulation.shutdown == Shutdown()
    assert simulation.max_running == 4
    assert len(lengths) == 30 + num_invalid
    assert max(lengths) == 20
    assert min(lengths) < 20
    assert {trial.state.name for trial in method.study.trials} == {"COMPLETE", "PRUNED", "FAIL"}
    assert method.study.best_value == min(
        trial.metric for trial in simulation.trials if trial.length == 20 and not math.isnan(trial.metric)
    )


def test_hyperparameters_have_the_shape_of_the_configuration() -> None:
    """Hyperparameters are shaped as in the configuration: nested, with constants, and with lists as values."""
    simulation = simulate(CustomSearch(search_of()), curve, validations=[])

    hparams = [trial.create.hparams for trial in simulation.trials]
    assert all(1e-4 <= one["lr"] <= 1e-1 and one["layers"] in (1, 2, 3, 4) for one in hparams)
    assert all(one["optimizer"]["nesterov"] is True for one in hparams)
    names = [one["optimizer"]["name"] for one in hparams]
    assert "sgd" in names
    assert ["adam", 0.9] in names


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_study_that_is_loaded_after_every_event_decides_the_same(sampler: str, tmp_path: Path) -> None:
    """A study that is reloaded after every event decides the same, since its sampler's random state is saved too."""

    class Reloaded:
        def on(self, event: Event) -> list[Operation]:
            custom = CustomSearch(search_of(sampler))
            if (tmp_path / "state").exists():
                custom.load(tmp_path)
            operations = custom.on(event)
            custom.save(tmp_path)
            return operations

    undisturbed = simulate(CustomSearch(search_of(sampler)), curve, validations=[])

    reloaded = simulate(Reloaded(), curve, validations=[])

    assert [trial.create for trial in reloaded.trials] == [trial.create for trial in undisturbed.trials]
    assert [trial.length for trial in reloaded.trials] == [trial.length for trial in undisturbed.trials]


STUDY = """
import math, os, signal, sys
from pathlib import Path
import optuna
from core_sdk.search import CustomSearch
from core_sdk.search.optuna import OptunaSearch
from core_sdk.search.simulation import simulate

folder, kill_at = Path(sys.argv[1]), int(sys.argv[2])
space = {"lr": {"loguniform": [1e-4, 1e-1]}}
pruner = optuna.pruners.MedianPruner(n_startup_trials=2)

class Kept:
    '''Answers from what was kept as long as there is some, as a driver does that reads its record of events.'''

    number = 0

    def __init__(self):
        method = OptunaSearch(space, max_trials=15, max_concurrent_trials=3, max_length=10, period=2, pruner=pruner)
        self.search = CustomSearch(method)
        self.loaded = len(list(folder.glob("*/answer")))
        if self.loaded:
            self.search.load(folder / str(self.loaded))

    def on(self, event):
        import pickle
        self.number += 1
        here = folder / str(self.number)
        if self.number > self.loaded:
            if self.number == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            operations = self.search.on(event)
            here.mkdir()
            self.search.save(here)
            (here / "answer").write_bytes(pickle.dumps(operations))
        return pickle.loads((here / "answer").read_bytes())

def curve(create, length):
    return abs(math.log10(create.hparams["lr"] / 0.01)) + 1 / length

for trial in simulate(Kept(), curve, validations=[]).trials:
    print(trial.create.hparams["lr"], trial.length)
"""


def test_a_study_that_was_killed_goes_on_with_the_same_decisions(tmp_path: Path) -> None:
    """A killed study is continued from its files by another process, with the same decisions."""

    def run(folder: str, kill_at: int = 0) -> subprocess.CompletedProcess[str]:
        (tmp_path / folder).mkdir(exist_ok=True)
        arguments = [sys.executable, "-W", "ignore", "-c", STUDY, str(tmp_path / folder), str(kill_at)]
        return subprocess.run(arguments, capture_output=True, text=True, env=dict(os.environ))

    undisturbed = run("undisturbed")
    killed = [run("killed", kill_at).returncode for kill_at in (5, 23, 40)]
    resumed = run("killed")

    assert killed == [-signal.SIGKILL] * 3
    assert undisturbed.returncode == resumed.returncode == 0, resumed.stderr
    assert len(undisturbed.stdout.splitlines()) == 15
    assert resumed.stdout == undisturbed.stdout


def test_larger_may_be_better() -> None:
    """With smaller_is_better=False the study maximizes the metric."""
    method = search_of(smaller_is_better=False)

    simulate(CustomSearch(method), lambda create, length: -curve(create, length), validations=[])

    assert method.study.best_params["lr"] == pytest.approx(0.01, rel=2)


def test_a_study_whose_trials_all_fail_has_failed() -> None:
    """A search whose trials are all invalid ends as failed, and does not create trials for ever."""

    def invalid(create: Create, length: int) -> float:
        raise TrialExit(ExitedReason.INVALID_HP)

    simulation = simulate(CustomSearch(search_of(max_trials=4)), invalid, validations=[])

    assert len(simulation.trials) == 14
    assert simulation.shutdown == Shutdown(failure=True)


@pytest.mark.parametrize(
    ("leaf", "distribution"),
    [
        (Const(1), None),
        (Int(minval=1, maxval=3), optuna.distributions.IntDistribution(1, 3)),
        (Double(minval=1.0, maxval=3.0), optuna.distributions.FloatDistribution(1, 3)),
        (Log(base=10.0, minval=-2.0, maxval=0.0), optuna.distributions.FloatDistribution(0.01, 1, log=True)),
        (Log(base=0.5, minval=0.0, maxval=2.0), optuna.distributions.FloatDistribution(0.25, 1, log=True)),
        (Categorical(("a", "b")), optuna.distributions.CategoricalDistribution([0, 1])),
    ],
)
def test_ranges_are_distributions(
    leaf: Hyperparameter, distribution: optuna.distributions.BaseDistribution | None
) -> None:
    """Each range of hyperparameters becomes the Optuna distribution of the same values."""
    assert distribution_of(leaf) == distribution


def test_a_space_is_checked_as_a_configuration_is() -> None:
    """A hyperparameter space is validated like a configuration, and the error names the mistake."""
    with pytest.raises(InvalidConfigError, match="maxval"):
        OptunaSearch({"lr": {"type": "double", "minval": 1.0, "maxvel": 2.0}}, max_trials=1)
