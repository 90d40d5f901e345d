"""`core-sdk checkpoint`: gc, pins, verify of many, partial deletion."""

from __future__ import annotations

import json

import pytest
from interfaces.cli.commands import Cli
from interfaces.cli.recorded import damage, new_attempt, new_trial, store
from stage import stored_ids

from core_sdk._ground.records import RetentionPolicy
from core_sdk._home import Home, TrialFolder
from core_sdk._home.storage import DirectoryStorage
from core_sdk._home.storage._staging_area import this_machine


@pytest.fixture
def folder(home: Home) -> TrialFolder:
    """A trial that has ended, with the checkpoints a, b and c, of which b is the best."""
    folder = new_trial(home)
    training = new_attempt(folder)
    for storage_id, steps, loss in (("a", 10, 0.5), ("b", 20, 0.1), ("c", 30, 0.3)):
        store(training, storage_id, steps)
        training.report(steps, "validation", loss=loss)
    training.end()
    return folder


def test_gc_shows_asks_and_deletes(home: Home, folder: TrialFolder, cli: Cli) -> None:
    """`gc` shows what it keeps, why, and what it frees, and the answer "no" deletes nothing."""
    options = ("checkpoint", "gc", "--save-trial-best", "1", "--metric", "loss")

    shown = cli(*options, "--dry-run")
    refused = cli(*options, stdin="n\n")
    after_no = stored_ids(home)
    deleted = cli(*options, "--yes")

    assert (shown.status, deleted.status) == (0, 0)
    assert refused.status != 0
    assert after_no == ["a", "b", "c"]
    assert stored_ids(home) == ["b", "c"]
    assert "best 1 of trial 1" in shown.output
    assert "to be deleted: 1 checkpoint, " in shown.output
    assert "deleted 1 checkpoint, " in deleted.output


def test_gc_refuses_a_metric_that_nobody_reported(home: Home, cli: Cli) -> None:
    """A mistyped name must not delete the best checkpoint; the metrics that exist are named."""
    training = new_attempt(new_trial(home))
    for number, loss in enumerate((1.0, 0.1, 0.5, 0.6), start=1):
        store(training, str(number), number)
        training.report(number, "validation", loss=loss, accuracy=1 - loss)
    training.end()
    options = ("checkpoint", "gc", "--save-trial-best", "1", "--save-trial-latest", "1", "--yes")

    mistyped = cli(*options, "--metric", "los")
    after = stored_ids(home)
    right = cli(*options, "--metric", "loss")

    assert mistyped.status not in (0, 1)
    assert "'los'" in mistyped.errors
    assert "accuracy, loss" in mistyped.errors
    assert after == ["1", "2", "3", "4"]
    assert right.status == 0
    assert stored_ids(home) == ["2", "4"]


def test_gc_by_a_metric_of_another_experiment_deletes_nothing_that_lacks_it(home: Home, cli: Cli) -> None:
    """`gc` over all experiments ranks only those with the metric and keeps what others validated."""
    for experiment, metric in (("first", "loss"), ("second", "error")):
        training = new_attempt(new_trial(home, experiment=experiment))
        for number, value in enumerate((0.1, 0.5, 0.6), start=1):
            store(training, f"{experiment}-{number}", number)
            training.report(number, "validation", **{metric: value})
        training.end()

    result = cli("checkpoint", "gc", "--save-trial-best", "1", "--metric", "loss", "--yes")

    assert result.status == 0
    assert stored_ids(home) == ["first-1", "first-3", "second-1", "second-2", "second-3"]


def test_gc_without_any_policy_removes_only_what_dead_processes_have_left(
    home: Home, folder: TrialFolder, cli: Cli
) -> None:
    """Every checkpoint is kept then, and the message says how to ask for less."""
    left = home.checkpoints / ".staging" / f"{this_machine()}-{'0' * 32}"
    left.mkdir()

    shown = cli("checkpoint", "gc", "--dry-run")
    was_there = left.exists()
    result = cli("checkpoint", "gc")

    assert (shown.status, result.status) == (0, 0)
    assert "--save-trial-best" in result.errors
    assert was_there
    assert not left.exists()
    assert stored_ids(home) == ["a", "b", "c"]


def test_gc_tells_programs_what_it_decided(home: Home, folder: TrialFolder, cli: Cli) -> None:
    """JSON has the rules, all verdicts and deletions; options override the recorded policy."""
    with home.experiment(1).edit() as record:
        record.retention = RetentionPolicy(save_trial_latest=9)

    result = cli(
        "checkpoint", "gc", "--save-trial-latest", "0", "--metric", "loss", "--larger-is-better", "--yes", "--json"
    )

    told = json.loads(result.output)
    assert told["rules"]["1"]["policy"] == {
        "save_experiment_best": 0,
        "save_trial_best": 1,
        "save_trial_latest": 0,
        "keep_every": None,
    }
    assert told["rules"]["1"]["metric"] == {"name": "loss", "smaller_is_better": False, "group": None, "writer": None}
    assert {verdict["storage_id"] for verdict in told["verdicts"] if verdict["is_kept"]} == {"a"}
    assert set(told["deleted"]) == {"b", "c"}
    assert stored_ids(home) == ["a"]


def test_gc_keeps_checkpoints_at_intervals(home: Home, folder: TrialFolder, cli: Cli) -> None:
    """`--keep-every` replaces the recorded interval, and refuses what is none."""
    options = ("checkpoint", "gc", "--keep-every", "steps=20", "--save-trial-best", "0", "--dry-run")
    shown = cli(*options)
    as_json = cli(*options, "--json")
    refused = cli("checkpoint", "gc", "--keep-every", "20", "--dry-run")

    assert "the best 0, the first of every 20 steps and the latest 1" in shown.output
    verdicts = json.loads(as_json.output)["verdicts"]
    reasons = {verdict["storage_id"]: verdict["reasons"] for verdict in verdicts if verdict["is_kept"]}
    assert reasons == {"b": ["first since 20 steps"], "c": ["latest 1 of trial 1"]}
    assert refused.status == 2
    assert "'20' is not steps=N" in refused.errors


def test_pins_are_shown_and_respected(home: Home, folder: TrialFolder, cli: Cli) -> None:
    """list, describe, gc and delete show and respect pins."""
    pinned = cli("checkpoint", "pin", "a", "b", "--note", "for the paper")
    listed = cli("checkpoint", "list")
    described = cli("checkpoint", "describe", "a")
    refused = cli("checkpoint", "delete", "a", "--yes")
    cli("checkpoint", "gc", "--save-trial-best", "0", "--yes")
    kept = stored_ids(home)
    cli("checkpoint", "unpin", "a")
    deleted = cli("checkpoint", "delete", "a", "--yes")

    assert (pinned.status, refused.status, deleted.status) == (0, 1, 0)
    assert listed.output.count("pinned") == 2
    assert "for the paper" in described.output
    assert "pinned: for the paper" in refused.errors
    assert kept == ["a", "b", "c"]
    assert stored_ids(home) == ["b", "c"]


def test_a_mistyped_id_pins_nothing(home: Home, folder: TrialFolder, cli: Cli) -> None:
    """If one id is unknown, no checkpoint is pinned."""
    result = cli("checkpoint", "pin", "a", "nothing")

    assert result.status == 3
    assert not folder.changes_path.exists()


def test_all_checkpoints_are_verified_a_line_each(home: Home, folder: TrialFolder, cli: Cli) -> None:
    """Each checkpoint has a line that tells damaged from missing; both make the status 1."""
    whole = cli("checkpoint", "verify", "--all", "--trial", "1")
    damage(home, "a")
    DirectoryStorage(home.checkpoints).delete("b")

    result = cli("checkpoint", "verify", "--all")

    assert whole.status == 0
    assert "3 of 3 checkpoints are whole" in whole.output
    assert result.status == 1
    lines = {line.split()[0]: line for line in result.output.splitlines()}
    assert "whole" in lines["c"]
    assert "missing" in lines["b"]
    assert "damaged" in lines["a"]
    assert "weights.bin" in lines["a"]


def test_verify_takes_an_id_or_all(home: Home, folder: TrialFolder, cli: Cli) -> None:
    """`verify` needs either an id or --all, and refuses both together."""
    assert cli("checkpoint", "verify").status == 2
    assert cli("checkpoint", "verify", "a", "--all").status == 2


def test_a_checkpoint_is_downloaded_to_the_directory_named_after_it(home: Home, folder: TrialFolder, cli: Cli) -> None:
    """A download goes to checkpoints/ID or to the directory in the argument."""
    named = cli("checkpoint", "download", "a", "copy")
    unnamed = cli("checkpoint", "download", "a")

    assert named.output == "copy\n"
    assert unnamed.output == "checkpoints/a\n"


def test_a_part_of_a_checkpoint_is_deleted(home: Home, cli: Cli) -> None:
    """--glob deletes only matching files; deleting all of them deletes the checkpoint."""
    folder = new_trial(home)
    training = new_attempt(folder)
    store(training, "a", 10)
    training.end()

    nothing = cli("checkpoint", "delete", "a", "--glob", "*.none", "--yes")
    everything = cli("checkpoint", "delete", "a", "--glob", "*.none", "--glob", "*.bin", "--yes")

    assert (nothing.status, nothing.output) == (1, "")
    assert "deleted checkpoint a" in everything.output
    assert stored_ids(home) == []
