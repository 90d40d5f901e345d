"""Labels, and deleting: what is asked for happens, after a question."""

from __future__ import annotations

import json

import pytest
from interfaces.cli.commands import Cli
from interfaces.cli.recorded import damage, new_attempt, new_trial, store
from stage import stored_ids

from core_sdk._home import Home, TrialFolder
from core_sdk._home.attempts.continuation import newest_good_checkpoint
from core_sdk._home.storage import DirectoryStorage


@pytest.fixture
def folder(home: Home) -> TrialFolder:
    """A trial with the checkpoints a and b."""
    folder = new_trial(home)
    training = new_attempt(folder)
    training.report(1, loss=1.0)
    store(training, "a", 10)
    store(training, "b", 20)
    training.end()
    return folder


def test_a_trial_is_deleted_after_a_question(home: Home, folder: TrialFolder, cli: Cli) -> None:
    """No answer is a no; its records and checkpoints go, and its number is not given again."""
    unasked = cli("trial", "delete", "1")
    refused = cli("trial", "delete", "1", stdin="n\n")
    stored_before = stored_ids(home)
    agreed = cli("trial", "delete", "1", stdin="y\n")
    again = cli("trial", "delete", "1", "--yes")

    assert (unasked.status, refused.status, agreed.status, again.status) == (1, 1, 0, 3)
    assert stored_before == ["a", "b"]
    assert stored_ids(home) == []
    assert json.loads(cli("trial", "list", "--json").output) == []
    assert json.loads(cli("checkpoint", "list", "--json", "--deleted").output) == []
    assert home.create_trial().trial_id == 2


def test_a_running_trial_is_not_deleted(folder: TrialFolder, cli: Cli) -> None:
    """A running trial is not deleted, neither by itself nor with its experiment."""
    training = new_attempt(folder)

    alone = cli("trial", "delete", "1", "--yes")
    with_experiment = cli("experiment", "delete", "digits", "--yes")

    training.die()
    assert (alone.status, with_experiment.status) == (1, 1)
    assert "core-sdk trial pause 1" in alone.errors


def test_an_experiment_is_deleted_with_its_trials(home: Home, folder: TrialFolder, cli: Cli) -> None:
    """An experiment may be named by its name or number; its trials and checkpoints are deleted with it."""
    new_trial(home, experiment="letters")

    deleted = cli("experiment", "delete", "digits", "--yes")

    experiments = json.loads(cli("experiment", "list", "--json").output)
    assert deleted.status == 0
    assert [experiment["name"] for experiment in experiments] == ["letters"]
    assert stored_ids(home) == []


def test_a_deleted_checkpoint_is_remembered(home: Home, folder: TrialFolder, cli: Cli) -> None:
    """A checkpoint whose files are gone can be deleted too, and no resume tries it afterwards."""
    DirectoryStorage(home.checkpoints).delete("a")

    deleted = [cli("checkpoint", "delete", storage_id, "--yes").status for storage_id in ("a", "b")]

    remembered = json.loads(cli("checkpoint", "list", "--json", "--deleted").output)
    assert deleted == [0, 0]
    assert json.loads(cli("checkpoint", "list", "--json").output) == []
    assert [row["state"] for row in remembered] == ["DELETED", "DELETED"]
    assert newest_good_checkpoint(folder).skipped == ()


def test_a_checkpoint_is_verified_and_downloaded(home: Home, folder: TrialFolder, cli: Cli) -> None:
    """A damaged checkpoint fails `verify` and `download`, which name its file."""
    damage(home, "b")

    whole = cli("checkpoint", "verify", "a")
    downloaded = cli("checkpoint", "download", "a", "copy")
    damaged = cli("checkpoint", "verify", "b")
    not_downloaded = cli("checkpoint", "download", "b")

    assert (whole.status, downloaded.status, damaged.status, not_downloaded.status) == (0, 0, 1, 1)
    assert "a  whole: 2 files" in whole.output
    assert (home.root.parent / "copy" / "weights.bin").read_bytes() == b"weights" * 100
    assert "weights.bin" in damaged.output
    assert "weights.bin" in not_downloaded.errors


def test_labels_are_given_and_taken_away(folder: TrialFolder, cli: Cli) -> None:
    """Adding a label twice or removing an unknown label is no error."""
    given = cli("experiment", "label", "digits", "fast", "good", "fast")
    taken = cli("experiment", "label", "1", "fast", "unknown", "--remove")

    experiment = json.loads(cli("experiment", "describe", "1", "--json").output)
    assert (given.status, taken.status) == (0, 0)
    assert "fast, good" in given.output
    assert experiment["labels"] == ["good"]


def test_archived_trials_are_hidden(folder: TrialFolder, home: Home, cli: Cli) -> None:
    """Archived trials are hidden from lists, and an unknown trial does not stop the others."""
    new_attempt(new_trial(home)).end()

    archived = cli("trial", "archive", "1", "7")
    listed = [json.loads(cli("trial", "list", "--json", *more).output) for more in ([], ["--all"])]
    found = json.loads(cli("trial", "list", "--where", "archived=true", "--all", "--json").output)
    back = cli("trial", "unarchive", "1", "--json")

    assert (archived.status, archived.output) == (3, "trial 1: archived\n")
    assert "there is no trial 7" in archived.errors
    assert [[row["trial_id"] for row in rows] for rows in (*listed, found)] == [[2], [1, 2], [1]]
    assert json.loads(back.output) == [{"trial_id": 1, "state": "unarchived"}]
    assert len(json.loads(cli("trial", "list", "--json").output)) == 2


def test_the_beginning_of_an_id_names_a_checkpoint(home: Home, cli: Cli) -> None:
    """An unambiguous prefix of an id works in every command; an ambiguous one is refused."""
    training = new_attempt(new_trial(home))
    store(training, "0c1a-first", 10)
    store(training, "0c1b-second", 20)
    training.end()

    named = [
        cli("checkpoint", *arguments)
        for arguments in (
            ("describe", "0c1A"),
            ("verify", "0c1a"),
            ("download", "0c1a", "copy"),
            ("pin", "0c1a"),
            ("unpin", "0c1a"),
            ("delete", "0c1a", "--yes"),
        )
    ]
    ambiguous = cli("checkpoint", "delete", "0c1", "--yes")
    unknown = cli("checkpoint", "describe", "0c2")

    assert [ended.status for ended in named] == [0] * len(named)
    assert all("0c1a-first" in ended.output for ended in named if "copy" not in ended.output)
    assert stored_ids(home) == ["0c1b-second"]
    assert (ambiguous.status, unknown.status) == (2, 3)
    assert "0c1a-first, 0c1b-second" in " ".join(ambiguous.errors.split())


def test_a_whole_id_is_not_taken_for_the_beginning_of_another(home: Home, cli: Cli) -> None:
    """A full id is preferred over longer ids that begin with it."""
    training = new_attempt(new_trial(home))
    store(training, "a", 10)
    store(training, "ab", 20)
    training.end()

    assert json.loads(cli("checkpoint", "describe", "a", "--json").output)["storage_id"] == "a"


def test_several_trials_are_deleted_after_one_question(home: Home, cli: Cli) -> None:
    """Trials are listed before a single question, and an unknown trial cancels the whole command."""
    for _ in range(3):
        new_attempt(new_trial(home)).end()

    unknown = cli("trial", "delete", "1", "9", "--yes")
    refused = cli("trial", "delete", "1", "3", stdin="n\n")
    agreed = cli("trial", "delete", "1", "3", stdin="y\n")

    assert (unknown.status, refused.status, agreed.status) == (3, 1, 0)
    assert refused.errors.startswith(
        "trial 1 of experiment 'digits' (COMPLETED, 0 steps)\n"
        "trial 3 of experiment 'digits' (COMPLETED, 0 steps)\n"
        "Delete these 2 trials"
    )
    assert agreed.output.strip() == "deleted trial 1\ndeleted trial 3"
    assert home.trial_ids() == [2]


def test_trials_are_chosen_by_a_condition_or_a_name(home: Home, cli: Cli) -> None:
    """Labels, archiving and deletion accept names and conditions; other commands need one trial."""
    for lr in (0.1, 0.2, 0.3):
        new_attempt(new_trial(home, hparams={"lr": lr})).end()
    for trial_id in ("1", "2"):
        cli("trial", "rename", trial_id, "twin")
    cli("trial", "rename", "3", "mine")

    several = cli("trial", "describe", "twin")
    labelled = cli("trial", "label", "--where", "lr<0.25", "small", "-q")
    by_name = cli("trial", "label", "mine", "1", "good")
    archived = cli("trial", "archive", "--where", "label=good", "--quiet")
    deleted = cli("trial", "delete", "--where", "archived=true and lr=0.1", "--yes", "-q")
    nothing = cli("trial", "delete", "--where", "lr>1", "--yes")
    both, neither = cli("trial", "delete", "1", "--where", "lr>0"), cli("trial", "archive")
    unknown, the_other = cli("trial", "describe", "nobody"), cli("trial", "describe", "twin")

    assert labelled.output == "1\n2\n"
    assert by_name.output == "labels of trial 3: good\nlabels of trial 1: small, good\n"
    assert (archived.output, deleted.output) == ("1\n3\n", "1\n")
    assert (nothing.status, nothing.output) == (0, "")
    assert (both.status, neither.status, unknown.status) == (2, 2, 3)
    assert "`core-sdk trial list` shows those that exist" in unknown.errors
    assert "give the number of one of them: 1, 2" in several.errors
    assert the_other.status == 0  # the only one of this name that is left
    assert home.trial_ids() == [2, 3]


def test_a_home_in_which_nothing_can_be_made_is_told_at_once(cli: Cli) -> None:
    """A home in which no index can be written is named at once, without waiting for a lock."""
    listed = cli("trial", "list", CORE_SDK_HOME="/proc")

    assert listed.status == 0
    assert "/proc/tracker.db" in listed.errors
    assert "cannot be written" in listed.errors
