"""What a search costs is shown before it runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from interfaces.cli.commands import Cli

CONFIG = """
entrypoint: python3 train.py
hyperparameters:
  lr: {loguniform: [1e-5, 1e-1]}
searcher:
  name: asha
  metric: loss
  max_trials: 64
  num_rungs: 4
  time_metric: epochs
  max_time: 256
resources:
  slots_per_trial: 2
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A search of 64 trials, in which each trial takes two slots."""
    (tmp_path / "config.yaml").write_text(CONFIG)
    return tmp_path / "config.yaml"


def test_a_preview_counts_trials_units_and_gpu_hours(cli: Cli, config: Path) -> None:
    """A preview shows trials, units and GPU hours, and its table adds up to the totals."""
    shown = cli("preview-search", str(config), "--units-per-second", "0.5")
    preview = json.loads(cli("preview-search", str(config), "--units-per-second", "0.5", "--json").output)

    assert shown.status == 0
    assert "End after epochs" in shown.output
    assert "of what all trials would train" in shown.output
    assert sum(row["num_trials"] for row in preview["trained"]) == preview["num_trials"] == 64
    assert sum(row["num_trials"] * row["length"] for row in preview["trained"]) == preview["num_units"] < 2500
    assert preview["num_units_at_most"] == 16384
    assert preview["gpu_hours"] == pytest.approx(preview["num_units"] * 2 / 0.5 / 3600)
    assert preview["max_running"] == 16


def test_a_preview_of_few_slots_takes_longer(cli: Cli, config: Path) -> None:
    """With fewer slots, fewer trials run at a time and the search takes longer."""
    arguments = ["preview-search", str(config), "--units-per-second", "1", "--json"]

    all_slots = json.loads(cli(*arguments).output)
    few_slots = json.loads(cli(*arguments, "--slots", "4").output)

    assert few_slots["max_running"] == 2
    assert few_slots["hours"] > all_slots["hours"]


def test_trials_without_a_known_length_are_counted(cli: Cli, config: Path) -> None:
    """Trials without a known length are counted, and --length gives one."""
    searcher = "searcher={name: random, metric: loss, max_trials: 20}"

    shown = cli("preview-search", str(config), "--config", searcher)
    preview = json.loads(cli("preview-search", str(config), "--config", searcher, "--length", "10", "--json").output)

    assert "20, of which 16 run at the same time" in shown.output
    assert "each trial to its own end" in shown.output
    assert preview["num_units"] == 200


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "searcher.max_tials=3"], "did you mean max_trials?"),
        (["--slots", "1"], "a trial needs 2 slots, and there are 1"),
        (["--config", "searcher={name: custom, metric: loss}"], "previewed by core_sdk.search.simulation"),
        (["--config", "searcher={name: grid, metric: loss}"], "a grid needs the number of values"),
    ],
)
def test_a_preview_refuses_what_an_experiment_would(cli: Cli, config: Path, arguments: list[str], message: str) -> None:
    """A preview refuses a bad configuration with status 2, like a submission."""
    refused = cli("preview-search", str(config), *arguments)

    assert refused.status == 2
    assert message in refused.errors
    assert "Traceback" not in refused.errors
