"""How long a search of 100,000 trials takes to decide: adaptive ASHA over a synthetic curve, in both forms.

python benchmarks/search.py [--trials 100000]
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from core_sdk._ground.config.hyperparameters import Categorical, Double, HyperparameterSpace, Log
from core_sdk._ground.config.lengths import Length
from core_sdk._ground.config.searchers import AdaptiveAshaSearcher
from core_sdk.search import Event, Operation, Search
from core_sdk.search.simulation import simulate

TARGET_S = 10
MAX_LENGTH = 256
REPORTS = (1, 4, 16, 64, 256)

SPACE = HyperparameterSpace(
    {
        "lr": Log(base=10.0, minval=-5.0, maxval=-1.0),
        "optimizer": HyperparameterSpace(
            {"momentum": Double(minval=0.0, maxval=1.0), "name": Categorical(("adam", "sgd"))}
        ),
    }
)


class Counted:
    """A search that knows how many events it was told, and how long the slowest answers took."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self.durations_s: list[float] = []

    def on(self, event: Event) -> list[Operation]:
        started = time.perf_counter()
        operations = self._search.on(event)
        self.durations_s.append(time.perf_counter() - started)
        return operations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100_000)
    num_trials = parser.parse_args().trials
    forms: dict[str, dict[str, Any]] = {
        "stopping": {"time_metric": "batches", "max_time": MAX_LENGTH},
        "promotion": {"max_length": Length(MAX_LENGTH)},
    }
    is_met = True
    for form, lengths in forms.items():
        searcher = AdaptiveAshaSearcher(metric="loss", max_trials=num_trials, **lengths)
        search = Counted(Search(searcher, SPACE, seed=0))
        started = time.process_time()
        simulation = simulate(search, validations=REPORTS)
        duration_s = time.process_time() - started
        durations_us = sorted(1e6 * duration for duration in search.durations_s)
        share = simulation.num_units / (num_trials * MAX_LENGTH)
        median_us, p99_us = durations_us[len(durations_us) // 2], durations_us[len(durations_us) * 99 // 100]
        print(
            f"{form:10} {duration_s:5.2f} s of a core (target {TARGET_S}); {len(durations_us)} events, "
            f"median {median_us:.0f} µs, p99 {p99_us:.0f} µs; {share:.1%} of the units that all trials would train"
        )
        is_met &= duration_s <= TARGET_S
    print("met" if is_met else "MISSED")
    sys.exit(0 if is_met else 1)


if __name__ == "__main__":
    main()
