"""A program that varies a training on its own: twenty experiments, and what it has to read for them."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from interfaces.cli.commands import Cli, WriteScript

from core_sdk._analysis.evidence import MOST_BYTES
from core_sdk._home import Home

SCRIPT = """
import time
from core_sdk import core

RATE = {rate}
with core.init(name="search", hparams={{"rate": RATE}}) as context:
    for step in range(1, 201):
        context.train.report_training_metrics(step, {{"loss": (RATE - 0.3) ** 2 + 1 / step}})
    context.train.report_validation_metrics(200, {{"loss": (RATE - 0.3) ** 2}})
    {end}
"""
MOST_TOKENS, BYTES_PER_TOKEN = 60_000, 4


class Agent:
    """A client that knows nothing but the output of commands, each of which is at most 4 KB."""

    def __init__(self, cli: Cli) -> None:
        self._cli = cli
        self.num_bytes = 0

    def call(self, *arguments: str) -> str:
        finished = self._cli(*arguments)
        output = finished.output + finished.errors
        assert len(output.encode()) <= MOST_BYTES, arguments
        self.num_bytes += len(output.encode())
        return output


def test_twenty_experiments_are_read_in_few_tokens(cli: Cli, write_script: WriteScript, home: Home) -> None:
    """Twenty variations, of which some fail, are run, read, judged and compared, by outputs of 4 KB at most."""
    agent, draw = Agent(cli), random.Random(7)
    best: int | None = None
    best_rate, best_loss = 1.0, float("inf")
    for number in range(20):
        rate = best_rate + draw.uniform(-0.3, 0.3) if best else best_rate
        end = "raise ValueError('it diverges')" if number % 7 == 3 else ""
        write_script(SCRIPT.format(rate=rate, end=end))
        parent: list[str] = ["--parent", str(best)] if best else []
        hypothesis = f"a rate of {rate:.3f} is better"
        agent.call("run", *parent, "--hypothesis", hypothesis, "--time-limit", "2m", "--", sys.executable, "train.py")
        trial_id = number + 1
        told = agent.call("trial", "evidence", str(trial_id), "--metric", "loss")
        loss = float(told.split("best 200:")[1].split(",")[0])
        is_kept = "COMPLETED" in told.splitlines()[0] and loss < best_loss
        if is_kept:
            best, best_rate, best_loss = trial_id, rate, loss
        agent.call("trial", "verdict", str(trial_id), "keep" if is_kept else "discard", "--why", f"loss {loss:.4f}")

    shown = json.loads(cli("trial", "tree", "--json").output)
    agent.call("trial", "tree", "--metric", "loss")

    assert agent.num_bytes <= MOST_TOKENS * BYTES_PER_TOKEN
    assert abs(best_rate - 0.3) < 0.2
    assert [one["trial_id"] for one in shown if one["verdict"] == "keep"][-1] == best
    assert shown[0]["depth"] == 0
    assert max(one["depth"] for one in shown) >= 2


def test_a_script_that_asks_for_stops_is_paused_when_its_time_is_over(
    cli: Cli, write_script: WriteScript, home: Home
) -> None:
    """A script that asks for stops saves and stops at its time limit, and the trial says why."""
    write_script(SCRIPT.format(rate=0.1, end="while not context.preempt.should_preempt(): time.sleep(0.1)"))

    cli("run", "--time-limit", "2s", "--", sys.executable, "train.py")

    shown = json.loads(cli("trial", "describe", "1", "--json").output)
    assert (shown["state"], shown["reason"]) == ("PAUSED", "its time limit of 2 s was over")


def test_a_script_without_a_context_is_canceled_when_its_time_is_over(cli: Cli, home: Home) -> None:
    """A command that knows nothing of stops is ended, and the trial says why."""
    cli("run", "--time-limit", "1s", "--", "sleep", "60")

    shown = json.loads(cli("trial", "describe", "1", "--json").output)
    assert (shown["state"], shown["reason"]) == ("CANCELED", "its time limit of 1 s was over")


def test_bad_variations_are_refused(cli: Cli, write_script: WriteScript, home: Home, tmp_path: Path) -> None:
    """An unknown parent, a time that is none and a verdict that is none are refused, and nothing is started."""
    write_script("")
    refused = [
        cli("run", "--parent", "7", "--", sys.executable, "train.py"),
        cli("run", "--time-limit", "soon", "--", sys.executable, "train.py"),
        cli("trial", "verdict", "7", "keep"),
        cli("trial", "tree", "7"),
    ]

    assert [one.status for one in refused] == [3, 2, 3, 3]
    assert "'soon' is no time such as 90s, 5m or 2h" in refused[1].errors
    assert home.trial_ids() == []
