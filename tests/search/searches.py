"""Configurations of searches, and drivers that look over a search's shoulder."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from core_sdk._ground.config.hyperparameters import Categorical, Double, HyperparameterSpace, Int, Log
from core_sdk._ground.config.lengths import Length
from core_sdk._ground.config.searchers import (
    AdaptiveAshaSearcher,
    AsyncHalvingSearcher,
    GridSearcher,
    RandomSearcher,
    SearcherConfig,
    SingleSearcher,
)
from core_sdk.search import (
    Close,
    Create,
    Event,
    Operation,
    Pause,
    Search,
    Stop,
    TrialClosed,
    ValidateAfter,
    ValidationCompleted,
)

SPACE = HyperparameterSpace(
    {
        "lr": Log(minval=-5.0, maxval=-1.0, base=10.0),
        "optimizer": HyperparameterSpace(
            {"momentum": Double(minval=0.0, maxval=1.0), "name": Categorical(("adam", "sgd"))}
        ),
        "layers": Int(minval=1, maxval=4),
    }
)
GRID = HyperparameterSpace(
    {"lr": Log(minval=-3.0, maxval=-1.0, base=10.0, count=3), "layers": Int(minval=1, maxval=4, count=4)}
)
SEED = 7


def asha(form: str = "stopping", **changes: Any) -> AsyncHalvingSearcher:
    """Returns a search of 64 trials on rungs of 4, 16, 64 and 256 units."""
    fields: dict[str, Any] = {"metric": "loss", "num_rungs": 4, "max_trials": 64}
    return AsyncHalvingSearcher(**fields | lengths(form, 256) | changes)


def adaptive(form: str = "stopping", **changes: Any) -> AdaptiveAshaSearcher:
    fields: dict[str, Any] = {"metric": "loss", "max_trials": 40}
    return AdaptiveAshaSearcher(**fields | lengths(form, 256) | changes)


def lengths(form: str, longest: int) -> dict[str, Any]:
    match form:
        case "stopping":
            return {"time_metric": "batches", "max_time": longest}
        case "promotion":
            return {"max_length": Length(longest)}
        case _:
            return {"max_length": Length(longest), "stop_once": True}


ALL: dict[str, SearcherConfig] = {
    "single": SingleSearcher(metric="loss"),
    "random": RandomSearcher(metric="loss", max_trials=20, max_concurrent_trials=4),
    "random of lengths": RandomSearcher(metric="loss", max_trials=20, max_length=Length(256)),
    "grid": GridSearcher(metric="loss", max_concurrent_trials=5),
    "asha": asha(),
    "asha one at a time": asha(max_concurrent_trials=1),
    "asha that promotes": asha("promotion"),
    "asha that orders and stops": asha("stop_once"),
    "adaptive_asha": adaptive(),
    "adaptive_asha that promotes": adaptive("promotion"),
    "adaptive_asha one at a time": adaptive(max_concurrent_trials=1),
    "adaptive_asha that promotes two at a time": adaptive("promotion", max_concurrent_trials=2),
    "asha by a model": asha(sampler="bayes", max_trials=30, max_concurrent_trials=4),
    "adaptive_asha that promotes, by a model": adaptive("promotion", sampler="bayes", max_concurrent_trials=3),
    "adaptive_asha, conservative": adaptive(mode="conservative", max_concurrent_trials=0, divisor=3),
}


def space_of(searcher: SearcherConfig) -> HyperparameterSpace:
    return GRID if isinstance(searcher, GridSearcher) else SPACE


def begin(searcher: SearcherConfig, seed: int = SEED) -> Search:
    return Search(searcher, space_of(searcher), seed)


class Watched:
    """A search of which every event and answer is kept, and every rule checked that holds for all searches."""

    def __init__(self, searcher: SearcherConfig, seed: int = SEED) -> None:
        self.searcher = searcher
        self.search = begin(searcher, seed)
        self.log: list[tuple[Event, list[Operation]]] = []
        self.active: set[Any] = set()
        self.created: list[Create] = []

    def on(self, event: Event) -> list[Operation]:
        operations = self.search.on(event)
        self.log.append((event, operations))
        if isinstance(event, TrialClosed):
            self.active.discard(event.request_id)
        for operation in operations:
            match operation:
                case Create():
                    self.created.append(operation)
                    self.active.add(operation.request_id)
                case ValidateAfter():
                    self.active.add(operation.request_id)
                case Pause():
                    self.active.discard(operation.request_id)
                case Close() if isinstance(event, ValidationCompleted):
                    # It has trained as far as it was told to, and ends as one that is paused does.
                    self.active.discard(operation.request_id)
        limit = getattr(self.searcher, "max_concurrent_trials", 1)
        assert not limit or len(self.active) <= limit
        assert 0 <= self.search.progress <= 1
        return operations

    def asked(self, kind: type[Stop | Close | Pause | ValidateAfter]) -> Counter[Any]:
        """Returns how often each trial was asked for this."""
        return Counter(one.request_id for _, answer in self.log for one in answer if isinstance(one, kind))


class Restarted:
    """A search that goes on after every event from its state, written as JSON and read back."""

    def __init__(self, searcher: SearcherConfig, seed: int = SEED) -> None:
        self.searcher = searcher
        self.seed = seed
        self.state = json.dumps(begin(searcher, seed).state(), allow_nan=False)

    def on(self, event: Event) -> list[Operation]:
        search = Search.restore(self.searcher, space_of(self.searcher), self.seed, json.loads(self.state))
        operations = search.on(event)
        self.state = json.dumps(search.state(), allow_nan=False)
        return operations
