"""Population-based training as a search method of one's own.

A population of trials is trained in rounds. After a round, a trial that is among the worst quarter of the population is
ended, and a new one takes its place: it begins with the checkpoint of one of the best quarter (exploit), and with its
hyperparameters, each a little changed (explore).

The script asks `core_context.searcher.operations()` for each round's length, stores a checkpoint at its end, and says
both to the search: `operation.report_completed({"loss": loss, "checkpoint": storage_id})`.
"""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any
from uuid import UUID

from core_sdk.search import (
    Close,
    Create,
    ExitedReason,
    Operation,
    SearcherState,
    SearchMethod,
    Shutdown,
    ValidateAfter,
)

CHANGES = (0.8, 1.25)
"""The factors by which hyperparameters are changed."""


class PopulationBasedTraining(SearchMethod):
    def __init__(
        self, ranges: dict[str, tuple[float, float]], *, population: int, num_rounds: int, round_length: int, seed: int
    ) -> None:
        """`ranges` are those from which the first hyperparameters are drawn, evenly in their logarithms."""
        self._ranges = ranges
        self._population = population
        self._num_rounds = num_rounds
        self._round_length = round_length
        self._seed = seed
        self._num_created = 0
        self._members: dict[str, dict[str, Any]] = {}
        """By request id: `hparams`; `rounds`, also those of its ancestors; the last `loss` and `checkpoint`."""

    def initial_operations(self, searcher_state: SearcherState) -> list[Operation]:
        operations: list[Operation] = []
        for _ in range(self._population):
            chance = self._chance()
            hparams = {name: low * (high / low) ** chance.random() for name, (low, high) in self._ranges.items()}
            operations += self._create(chance, hparams)
        return operations

    def on_validation_completed(
        self, searcher_state: SearcherState, request_id: UUID, metric: Any, train_length: int
    ) -> list[Operation]:
        member = self._members[str(request_id)]
        member |= {"rounds": member["rounds"] + 1, **metric}
        if member["rounds"] == self._num_rounds:
            return [Close(request_id)]
        ranked = sorted((one for one in self._members.values() if one["loss"] is not None), key=_rank)
        num_apart = len(ranked) // 4
        if num_apart == 0 or member not in ranked[-num_apart:]:
            return [ValidateAfter(request_id, train_length + self._round_length)]
        del self._members[str(request_id)]
        chance = self._chance()
        parent = chance.choice(ranked[:num_apart])
        hparams = {name: value * chance.choice(CHANGES) for name, value in parent["hparams"].items()}
        return [Close(request_id), *self._create(chance, hparams, parent)]

    def on_trial_exited_early(
        self, searcher_state: SearcherState, request_id: UUID, exited_reason: ExitedReason
    ) -> list[Operation]:
        """A population may shrink."""
        self._members.pop(str(request_id), None)
        return []

    def on_trial_closed(self, searcher_state: SearcherState, request_id: UUID) -> list[Operation]:
        if len(searcher_state.trials_closed) < self._num_created:
            return []
        return [Shutdown(failure=len(searcher_state.failures) == self._num_created)]

    def on_trial_created(self, searcher_state: SearcherState, request_id: UUID) -> list[Operation]:
        return []

    def progress(self, searcher_state: SearcherState) -> float:
        num_rounds: int = sum(member["rounds"] for member in self._members.values())
        return num_rounds / (self._population * self._num_rounds)

    def save_method_state(self, path: Path) -> None:
        (path / "population.json").write_text(json.dumps([self._num_created, self._members]))

    def load_method_state(self, path: Path) -> None:
        self._num_created, self._members = json.loads((path / "population.json").read_text())

    def _create(
        self, chance: random.Random, hparams: dict[str, float], parent: dict[str, Any] | None = None
    ) -> list[Operation]:
        request_id = UUID(int=chance.getrandbits(128), version=4)
        rounds, checkpoint = (parent["rounds"], parent["checkpoint"]) if parent else (0, None)
        self._members[str(request_id)] = {"hparams": hparams, "rounds": rounds, "loss": None, "checkpoint": None}
        return [Create(request_id, hparams, checkpoint), ValidateAfter(request_id, self._round_length)]

    def _chance(self) -> random.Random:
        """Random numbers for the next trial, which are the same after a restart."""
        self._num_created += 1
        return random.Random(f"{self._seed} {self._num_created}")


def _rank(member: dict[str, Any]) -> tuple[bool, float]:
    """NaN is the worst loss."""
    return math.isnan(member["loss"]), member["loss"]
