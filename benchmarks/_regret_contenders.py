"""Search methods of several tools behind one small interface, each of which imports its tool when it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from _regret_surrogate import NUM_EPOCHS, RANGES, Point

LOWEST = 3
"""The epochs of the lowest rung: the whole length, divided by 4 twice."""
FACTOR = 4
_NUM_RUNGS = 3
NUM_WORKERS = 4
MAX_TRIALS = 1000


@dataclass
class Job:
    """A training to carry out: a new one, or one that goes on."""

    key: Any
    point: Point
    trained: int = 0
    """The epochs that it has been trained for already."""


class Contender(Protocol):
    """A search method, which is asked whenever a worker is free, and told after every epoch."""

    def ask(self) -> Job | None:
        """Returns the next training, or None if others must be reported first."""

    def report(self, job: Job, epoch: int, accuracy: float) -> bool:
        """Returns whether to train on. Ends the training after the last epoch itself."""


class Ours:
    """A searcher of Core SDK."""

    def __init__(self, seed: int, **searcher: Any) -> None:
        from core_sdk.search import AskTell

        space = {
            name: {"loguniform": [low, high]} if kind == "log" else {"type": kind, "minval": low, "maxval": high}
            for name, (kind, low, high) in RANGES.items()
        }
        common = {"metric": "accuracy", "smaller_is_better": False, "max_trials": MAX_TRIALS}
        self._study = AskTell(
            {
                "searcher": common | {"max_concurrent_trials": NUM_WORKERS} | searcher,
                "hyperparameters": space,
                "reproducibility": {"experiment_seed": seed},
            }
        )

    def ask(self) -> Job | None:
        trial = self._study.ask()
        return None if trial is None else Job(trial, trial.hparams, int(trial.trained))

    def report(self, job: Job, epoch: int, accuracy: float) -> bool:
        trial = job.key
        if trial.until is not None:
            return epoch < trial.until or self._study.tell(trial, accuracy)
        goes_on = self._study.tell(trial, accuracy, epoch)
        if goes_on and epoch == NUM_EPOCHS:
            self._study.end(trial)
        return goes_on and epoch < NUM_EPOCHS


class Optuna:
    """One of Optuna's samplers with one of its pruners."""

    def __init__(self, seed: int, sampler: str, pruner: str) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        pruners: dict[str, Callable[[], Any]] = {
            "hyperband": lambda: optuna.pruners.HyperbandPruner(LOWEST, NUM_EPOCHS, FACTOR),
            "halving": lambda: optuna.pruners.SuccessiveHalvingPruner(LOWEST, FACTOR),
        }
        samplers: dict[str, Callable[[], Any]] = {
            "random": lambda: optuna.samplers.RandomSampler(seed=seed),
            "TPE": lambda: optuna.samplers.TPESampler(seed=seed, constant_liar=True),
        }
        self._pruned = optuna.trial.TrialState.PRUNED
        self._study = optuna.create_study(direction="maximize", sampler=samplers[sampler](), pruner=pruners[pruner]())

    def ask(self) -> Job:
        trial = self._study.ask()
        point: Point = {}
        for name, (kind, low, high) in RANGES.items():
            if kind == "int":
                point[name] = trial.suggest_int(name, int(low), int(high))
            else:
                point[name] = trial.suggest_float(name, low, high, log=kind == "log")
        return Job(trial, point)

    def report(self, job: Job, epoch: int, accuracy: float) -> bool:
        job.key.report(accuracy, epoch)
        if epoch == NUM_EPOCHS:
            self._study.tell(job.key, accuracy)
        elif job.key.should_prune():
            self._study.tell(job.key, state=self._pruned)
        else:
            return True
        return False


class RayAsha:
    """Ray Tune's ASHA, at points at random. Its scheduler is asked directly, without a cluster."""

    def __init__(self, seed: int) -> None:
        import random

        from ray.tune.schedulers import AsyncHyperBandScheduler

        self._rng = random.Random(seed)
        self._scheduler: Any = AsyncHyperBandScheduler(
            "epoch", "accuracy", "max", max_t=NUM_EPOCHS, grace_period=LOWEST, reduction_factor=FACTOR
        )
        self._num_trials = 0

    def ask(self) -> Job:
        from _regret_surrogate import values_of

        trial = _RayTrial(str(self._num_trials))
        self._num_trials += 1
        self._scheduler.on_trial_add(None, trial)
        return Job(trial, values_of([self._rng.random() for _ in RANGES]))

    def report(self, job: Job, epoch: int, accuracy: float) -> bool:
        result = {"epoch": epoch, "accuracy": accuracy}
        if epoch == NUM_EPOCHS:
            self._scheduler.on_trial_complete(None, job.key, result)
            return False
        return bool(self._scheduler.on_trial_result(None, job.key, result) == self._scheduler.CONTINUE)


@dataclass(frozen=True)
class _RayTrial:
    trial_id: str


class Smac:
    """SMAC3's multi-fidelity facade: random forests and Hyperband. A promoted training goes on where it stood."""

    def __init__(self, seed: int, folder: str) -> None:
        import smac

        space = _config_space(seed)
        scenario = smac.Scenario(
            space, n_trials=10_000, min_budget=LOWEST, max_budget=NUM_EPOCHS, seed=seed, output_directory=folder
        )
        facade = smac.MultiFidelityFacade
        intensifier = facade.get_intensifier(scenario, eta=FACTOR)
        self._smac: Any = facade(scenario, _never_called, intensifier=intensifier, overwrite=True, logging_level=False)
        self._value: Any = smac.runhistory.TrialValue
        self._trained: dict[Any, int] = {}

    def ask(self) -> Job | None:
        try:
            info = self._smac.ask()
        except StopIteration:
            return None
        return Job(info, dict(info.config), self._trained.get(info.config, 0))

    def report(self, job: Job, epoch: int, accuracy: float) -> bool:
        if epoch < round(job.key.budget):
            return True
        self._trained[job.key.config] = epoch
        self._smac.tell(job.key, self._value(cost=-accuracy))
        return False


class Bohb:
    """BOHB, by its authors' HpBandSter: a density of good points and Hyperband. Its parts are asked without servers."""

    def __init__(self, seed: int) -> None:
        import numpy
        from hpbandster.optimizers.config_generators.bohb import BOHB

        numpy.random.seed(seed)  # it has no seed of its own
        self._generator: Any = BOHB(_config_space(seed))
        self._brackets: list[Any] = []
        self._num_brackets = 0
        self._trained: dict[Any, int] = {}

    def ask(self) -> Job:
        for bracket in self._brackets:
            if (run := bracket.get_next_run()) is not None:
                key, point, epochs = run
                return Job((bracket, key, point, epochs), point, self._trained.get(key, 0))
        self._brackets = [each for each in self._brackets if not each.is_finished]
        self._brackets.append(self._next_bracket())
        return self.ask()

    def _next_bracket(self) -> Any:
        """Returns a round of successive halving, as HpBandSter's own master makes it: those with most points first."""
        from hpbandster.optimizers.iterations import SuccessiveHalving

        num_stages = _NUM_RUNGS - self._num_brackets % _NUM_RUNGS
        sizes = [_NUM_RUNGS // num_stages * FACTOR ** (num_stages - 1 - stage) for stage in range(num_stages)]
        epochs = [round(NUM_EPOCHS / FACTOR ** (num_stages - 1 - stage)) for stage in range(num_stages)]
        self._num_brackets += 1
        return SuccessiveHalving(self._num_brackets, sizes, epochs, self._generator.get_config)

    def report(self, job: Job, epoch: int, accuracy: float) -> bool:
        from hpbandster.core.dispatcher import Job as Result

        bracket, key, point, epochs = job.key
        if epoch < epochs:
            return True
        self._trained[key] = epoch
        result = Result(key, config=point, budget=epochs)
        result.result = {"loss": -accuracy}
        bracket.register_result(result)
        self._generator.new_result(result)
        return False


def _config_space(seed: int) -> Any:
    import ConfigSpace

    space = ConfigSpace.ConfigurationSpace(seed=seed)
    for name, (kind, low, high) in RANGES.items():
        if kind == "int":
            space.add(ConfigSpace.Integer(name, (int(low), int(high))))
        else:
            space.add(ConfigSpace.Float(name, (low, high), log=kind == "log"))
    return space


def _never_called(config: Any, seed: int, budget: float) -> float:
    """Stands for the training, which SMAC wants to know although it is only asked and told."""
    raise NotImplementedError


STOPS = {"time_metric": "epoch", "max_time": NUM_EPOCHS}
PROMOTES = {"max_length": NUM_EPOCHS}
ASHA = {"name": "asha", "num_rungs": 3}
ADAPTIVE = {"name": "adaptive_asha"}
BAYES = {"sampler": "bayes"}

CONTENDERS: dict[str, Callable[[int, str], Contender]] = {
    "random": lambda seed, _: Ours(seed, name="random", max_length=NUM_EPOCHS),
    "asha, stopping": lambda seed, _: Ours(seed, **ASHA, **STOPS),
    "asha, promotion": lambda seed, _: Ours(seed, **ASHA, **PROMOTES),
    "adaptive_asha, stopping": lambda seed, _: Ours(seed, **ADAPTIVE, **STOPS),
    "asha, stopping, bayes": lambda seed, _: Ours(seed, **ASHA, **STOPS, **BAYES),
    "asha, promotion, bayes": lambda seed, _: Ours(seed, **ASHA, **PROMOTES, **BAYES),
    "adaptive_asha, stopping, bayes": lambda seed, _: Ours(seed, **ADAPTIVE, **STOPS, **BAYES),
    "Optuna random, halving": lambda seed, _: Optuna(seed, "random", "halving"),
    "Optuna TPE, halving": lambda seed, _: Optuna(seed, "TPE", "halving"),
    "Optuna TPE, Hyperband": lambda seed, _: Optuna(seed, "TPE", "hyperband"),
    "Ray Tune ASHA": lambda seed, _: RayAsha(seed),
    "BOHB": lambda seed, _: Bohb(seed),
    "SMAC3 multi-fidelity": Smac,
}
