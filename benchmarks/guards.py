"""Injects NaNs and spikes into trainings of 1, 2 and 4 ranks, and compares how they end with trainings without them.

python benchmarks/guards.py [NUMBER]

Each training goes back by a guard and leaves out the batches of the trouble. Its weights must be bit for bit those of a
training that has left out the same batches from the beginning.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from execution.agent.test_leaving_out import resumed_steps, train, weights

from core_sdk._home import Home
from core_sdk._home.attempts.setbacks import read_troubles

RULES: dict[str, dict[str, object]] = {
    "nan": {"not_finite": True},
    "1e6": {"above_median": 30.0},
}


def main() -> None:
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    generator, exact, done, begun = random.Random(1), 0, 0, time.monotonic()
    while done < number:
        kind, num_ranks = generator.choice([*RULES]), generator.choice([1, 2, 4])
        found = inject(kind, generator.randrange(200), generator.randrange(3), num_ranks)
        if found is None:
            continue  # the sample does not come, or too early for a median
        done, exact = done + 1, exact + found
        print(f"{done}: {kind} on {num_ranks} ranks: {'exact' if found else 'DIFFERENT'}", flush=True)
    print(
        f"{exact} of {number} injections end bit for bit as if they had not been, in {time.monotonic() - begun:.0f} s"
    )


def inject(kind: str, sample: int, skip_batches: int, num_ranks: int) -> bool | None:
    """Returns whether a training ends exactly; None if it had no trouble, or so early that nothing was usual."""
    rule = {**RULES[kind], "action": "go_back", "skip_batches": skip_batches}
    with tempfile.TemporaryDirectory() as directory:
        home = Home(Path(directory) / "home")
        os.environ["CORE_SDK_HOME"] = str(home.root)
        status, output = train(Path(directory), [sample, kind], [rule], num_ranks=num_ranks)
        troubles = read_troubles(home.trial(1), home.trial(1).attempts())
        if not troubles:
            return None
        steps = resumed_steps(home)
        if status or len(steps) != 2:
            print(output)
            return False
        left_out = {str(steps[1]): troubles[0][1].steps - steps[1] + skip_batches}
        _, plain = train(Path(directory), [-1, kind], [], left_out=left_out, num_ranks=num_ranks)
        return weights(plain) == weights(output)


if __name__ == "__main__":
    main()
