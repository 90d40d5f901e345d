"""Measures how long the ledger of a home takes, whose trials were killed, paused and resumed at random.

    python benchmarks/ledger.py [TRIALS]

Targets: at most 1 s for 10,000 trials that are in the index, and phases that add up to each trial's wall time to the
millisecond.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from home.test_time_ledger import write_random_trial

from core_sdk._home import Home, open_view
from core_sdk._home.finding.time_ledger import read_ledger

TARGET_S = 1.0


def main() -> None:
    num_trials = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as directory:
        home = Home.create(Path(directory) / "home")
        walls = [write_random_trial(home, seed)[1] for seed in range(num_trials)]
        begun = time.monotonic()
        with open_view(home) as view:
            view.trials()
            print(f"{num_trials:,} trials are indexed in {time.monotonic() - begun:.1f} s, once")
            seconds, of_processor = [], []
            for _ in range(5):
                begun, begun_processor = time.monotonic(), time.process_time()
                read_ledger(view)
                seconds.append(time.monotonic() - begun)
                of_processor.append(time.process_time() - begun_processor)
            rows = {row.trial_id: row.time for row in view.times()}
        exact = sum(sum(vars(rows[number]).values()) == wall for number, wall in enumerate(walls, 1))
        missed = "" if min(seconds) <= TARGET_S else ", MISSED"
        print(
            f"their ledger takes {min(seconds):.2f} s at best of five, {min(of_processor):.2f} s of a processor",
            end=" ",
        )
        print(f"(target: {TARGET_S:.0f} s{missed})")
        print(f"the phases of {exact:,} of {num_trials:,} trials add up to their wall times")


if __name__ == "__main__":
    main()
