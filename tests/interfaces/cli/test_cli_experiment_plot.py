"""A search is drawn: its trials, its rungs, and where it has stopped a trial."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from interfaces.cli.commands import Cli
from masters import running_master

from core_sdk._home import Home

TRAIN = """
import core_sdk as det

with det.core.init() as context:
    lr, latest = context.info.trial.hparams["lr"], context.info.latest_checkpoint
    epoch = 0 if latest is None else context.checkpoint.get_metadata(latest)["steps_completed"]
    for operation in context.searcher.operations():
        while epoch < operation.length:
            epoch += 1
            context.train.report_validation_metrics(epoch, {"loss": lr / epoch})
        with context.checkpoint.store_path({"steps_completed": epoch}) as (path, _):
            (path / "weights.bin").write_bytes(b"weights")
        operation.report_completed(lr / epoch)
"""
CONFIG = f"""
name: digits
entrypoint: [{sys.executable}, train.py]
hyperparameters:
  lr: {{type: double, minval: 1, maxval: 2}}
searcher: {{name: asha, metric: loss, max_trials: 4, num_rungs: 2, divisor: 2, max_length: {{epochs: 4}}}}
"""
CROSS = "m-3 -3"


@pytest.fixture(autouse=True)
def model(home: Home, tmp_path: Path) -> Iterator[None]:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "train.py").write_text(TRAIN)
    (tmp_path / "search.yaml").write_text(CONFIG)
    with running_master(Home.create(home.root)):
        yield


def run(cli: Cli, *options: str) -> None:
    cli("experiment", "create", "search.yaml", "model", *options)
    assert cli("experiment", "wait", "1").status == 0


def test_the_rungs_and_the_stopped_trials_of_a_search_are_drawn(cli: Cli, tmp_path: Path) -> None:
    """A curve for each trial; some of four were not promoted, and one is the best."""
    run(cli)

    shown = cli("experiment", "plot", "1", "--output", "search.svg")

    picture = ElementTree.parse(tmp_path / "search.svg").getroot()
    tags = Counter(element.tag.partition("}")[2] for element in picture.iter())
    texts = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    paths = [element.get("d", "") for element in picture.iter("{http://www.w3.org/2000/svg}path")]
    assert shown.output == "search.svg\n"
    assert tags["polyline"] == 4
    assert sum(CROSS in path for path in paths) >= 1
    assert texts[0] == "digits: loss by epochs"
    assert texts.count("rung") == 2
    assert {"trained to the end", "stopped"} < set(texts)
    assert [text for text in texts if text and text.endswith("the best")]


def test_a_search_without_rungs_is_drawn_by_steps(cli: Cli) -> None:
    """A search without rungs is drawn over steps, with the best trial's curve on top."""
    run(
        cli,
        "--config",
        "searcher={name: grid, metric: loss}",
        "--config",
        "hyperparameters.lr={type: double, minval: 1, maxval: 2, count: 2}",
    )

    drawn = cli("experiment", "plot", "digits").output.splitlines()

    assert drawn[0] == "digits: loss by steps"
    assert [line.strip() for line in drawn if line.startswith("  ") and "─" not in line][-2:] == [
        "A trial 1, the best",
        "B trained to the end",
    ]


def test_a_search_that_has_reported_nothing_is_not_drawn(cli: Cli, tmp_path: Path) -> None:
    """Without reports the plot says so and writes no file."""
    cli("experiment", "create", "search.yaml", "model", "--paused")

    shown = cli("experiment", "plot", "1")
    drawn = cli("experiment", "plot", "1", "--output", "search.svg")

    assert shown.output == "No reports yet.\n"
    assert drawn.status == 1
    assert "nothing to draw" in drawn.errors
    assert not (tmp_path / "search.svg").exists()
