"""The checkpoint that is named as the best is the one of the best value."""

from __future__ import annotations

import json
from pathlib import Path

from interfaces.cli.commands import Cli
from interfaces.cli.recorded import new_attempt, new_trial, store

from core_sdk._ground.records import SearcherMetric
from core_sdk._home import Home

BEST = ("experiment", "best", "1", "--metric", "accuracy", "--larger-is-better")


def train(home: Home, accuracies: list[float], saved: str) -> None:
    """Trains and validates at steps 10, 20, …; `saved` has a letter where a checkpoint is stored, else a dot."""
    training = new_attempt(new_trial(home))
    for index, (accuracy, letter) in enumerate(zip(accuracies, saved, strict=True)):
        training.report(10 * (index + 1), "validation", accuracy=accuracy)
        if letter != ".":
            store(training, letter * 8, 10 * (index + 1))
    training.end()


def test_the_best_value_has_its_own_checkpoint(home: Home, cli: Cli) -> None:
    """The checkpoint of the best value is shown with its step, even if the trial has newer ones."""
    train(home, [0.5, 0.9, 0.6], "abc")

    shown = cli(*BEST).output
    best = json.loads(cli(*BEST, "--json").output)["best"]
    described = cli("experiment", "describe", *BEST[2:]).output

    assert "bbbbbbbb (step 20)" in shown
    assert "cccccccc" not in shown
    assert (best["value"], best["steps_completed"]) == (0.9, 20)
    assert best["checkpoint"] == {"storage_id": "b" * 8, "trial_id": 1, "steps_completed": 20, "value": 0.9}
    assert "trial 1, with accuracy 0.9 at step 20, checkpoint bbbbbbbb" in described


def test_a_best_value_without_a_checkpoint_says_so(home: Home, cli: Cli) -> None:
    """The best one that has a checkpoint is named, with its value, step and trial."""
    train(home, [0.5, 0.9, 0.6], "a.c")
    train(home, [0.7], "d")

    shown = " ".join(cli(*BEST).output.split())
    best = json.loads(cli(*BEST, "--json").output)["best"]

    assert "none of this value; the best that has one: dddddddd (trial 2, step 10, accuracy 0.7)" in shown
    assert (best["trial_id"], best["value"], best["steps_completed"]) == (1, 0.9, 20)
    assert best["checkpoint"] == {"storage_id": "d" * 8, "trial_id": 2, "steps_completed": 10, "value": 0.7}


def test_a_deleted_checkpoint_is_not_the_best(home: Home, cli: Cli) -> None:
    """If the best value's checkpoint was deleted, no checkpoint is named."""
    train(home, [0.9], "a")
    assert cli("checkpoint", "delete", "a" * 8, "--yes").status == 0

    shown = cli(*BEST).output
    best = json.loads(cli(*BEST, "--json").output)["best"]

    assert "none with this metric" in shown
    assert (best["value"], best["checkpoint"]) == (0.9, None)


def test_checkpoints_are_listed_with_their_metric(home: Home, cli: Cli) -> None:
    """Lists show the searcher's metric of each checkpoint, and JSON has all validation metrics."""
    train(home, [0.5, 0.9], "ab")
    with home.experiment(1).edit() as record:
        record.searcher_metric = SearcherMetric(name="accuracy", smaller_is_better=False)

    listed = cli("checkpoint", "list").output.splitlines()
    objects = json.loads(cli("checkpoint", "list", "--json").output)
    described = cli("checkpoint", "describe", "bbbbbbbb").output

    assert listed[0].split()[:4] == ["ID", "Trial", "Steps", "accuracy"]
    assert [line.split()[3] for line in listed[2:4]] == ["0.9", "0.5"]
    assert [one["metrics"] for one in objects] == [{"accuracy": 0.9}, {"accuracy": 0.5}]
    assert "Metrics" in described
    assert "accuracy: 0.9" in described


def test_a_metric_is_chosen_for_a_list_of_checkpoints(home: Home, cli: Cli) -> None:
    """`--metric` chooses the column, and a metric that no checkpoint has is refused."""
    train(home, [0.5, 0.9], "ab")

    listed = cli("checkpoint", "list", "--metric", "accuracy").output.splitlines()
    refused = cli("checkpoint", "list", "--metric", "acuracy")

    assert [line.split()[3] for line in listed[2:4]] == ["0.9", "0.5"]
    assert refused.status == 2
    assert "accuracy" in refused.errors


def test_the_best_checkpoints_of_an_experiment_are_listed_and_downloaded(home: Home, cli: Cli, tmp_path: Path) -> None:
    """Determined's commands list the best checkpoints and download the best one of each trial."""
    train(home, [0.5, 0.9, 0.6], "abc")
    train(home, [0.7], "d")
    with home.experiment(1).edit() as record:
        record.searcher_metric = SearcherMetric(name="accuracy", smaller_is_better=False)

    listed = json.loads(cli("e", "list-checkpoints", "1", "--best", "2", "--json").output)
    refused = cli("checkpoint", "list", "--best", "2")
    quiet = cli("e", "download", "1", "-o", str(tmp_path), "--top-n", "2", "-q")
    worst = cli("e", "download", "1", "--output-dir", str(tmp_path), "--sort-by", "accuracy", "--smaller-is-better")
    named = [
        cli(*command, "accuracy", "-o", str(tmp_path / "named")).output
        for command in (("e", "download", "1", "-q", "--metric"), ("t", "download", "1", "--best", "--sort-by"))
    ]

    assert [one["storage_id"] for one in listed] == ["b" * 8, "d" * 8]
    assert (refused.status, quiet.output) == (2, f"{tmp_path / ('b' * 8)}\n{tmp_path / ('d' * 8)}\n")
    assert worst.output == f"trial 1: {tmp_path / ('a' * 8)}\n"
    assert named == [f"{tmp_path / 'named' / ('b' * 8)}\n", f"{tmp_path / 'named'}\n"]
    manifests = [(tmp_path / name / ".manifest.json").read_bytes() for name in ("named", "b" * 8)]
    assert manifests[0] == manifests[1]
    assert (tmp_path / ("d" * 8) / "metadata.json").exists()


def test_experiments_of_several_metrics_name_each(home: Home, cli: Cli) -> None:
    """If experiments have different metrics, each value stands with its metric's name."""
    for number, metric in ((1, "accuracy"), (2, "loss")):
        training = new_attempt(new_trial(home, experiment=f"of {metric}"))
        training.report(10, "validation", **{metric: number / 4})
        store(training, f"{number}" * 8, 10)
        training.end()
        with home.experiment(number).edit() as record:
            record.searcher_metric = SearcherMetric(name=metric)

    listed = cli("checkpoint", "list").output

    assert "accuracy 0.25" in listed
    assert "loss 0.5" in listed
