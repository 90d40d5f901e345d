"""Trials are found by what they were tried with and by what they reached."""

from __future__ import annotations

import csv
import io
import json

import pytest
from interfaces.cli.commands import Cli
from interfaces.cli.recorded import new_attempt, new_trial
from interfaces.server.visitor import Visitor

from core_sdk._execution.steering import trials
from core_sdk._ground.records import EnvironmentRecord, SearcherMetric
from core_sdk._home import Home, open_view
from core_sdk._interfaces.cli.trial.listing import choose_trials
from core_sdk._interfaces.render.output import cell


@pytest.fixture
def three_trials(home: Home) -> None:
    """Trials of different learning rates, of which the second has failed and the third has validated nothing."""
    for number, (lr, accuracy) in enumerate([(0.1, 0.7), (0.01, 0.9), (0.001, None)]):
        training = new_attempt(new_trial(home, hparams={"lr": lr, "model": {"layers": number, "name": "cnn"}}))
        training.report(1, loss=1.0)
        training.report(2, loss=0.5)
        if accuracy is not None:
            training.report(1, "validation", accuracy=accuracy + 0.05, loss=2.0)
            training.report(2, "validation", accuracy=accuracy, loss=1.5)
        training.end("error" if number == 1 else "completed", error="ValueError: no" if number == 1 else None)


def ids(cli: Cli, *arguments: str) -> list[int]:
    return [one["trial_id"] for one in json.loads(cli("trial", "list", "--json", *arguments).output)]


@pytest.mark.usefixtures("three_trials")
def test_what_differs_between_trials_stands_first(cli: Cli) -> None:
    """Columns whose values differ come first in tables and CSV; JSON keeps hyperparameters as given."""
    head = cli("trial", "list", COLUMNS="200").output.splitlines()[0].split()
    rows = list(csv.DictReader(io.StringIO(cli("trial", "list", "--csv").output)))
    objects = json.loads(cli("trial", "list", "--json").output)

    assert head[:9] == [
        "ID", "Experiment", "State", "Steps", "accuracy", "lr", "model.layers", "validation.loss", "Reason",
    ]  # fmt: skip
    assert head[-3:] == ["model.name", "training.loss", "Attempts"]
    assert [(row["lr"], row["validation.accuracy"]) for row in rows] == [("0.1", "0.7"), ("0.01", "0.9"), ("0.001", "")]
    assert objects[0]["hparams"]["model"] == {"layers": 0, "name": "cnn"}
    assert objects[0]["metrics"] == {"training": {"loss": 0.5}, "validation": {"accuracy": 0.7, "loss": 1.5}}


@pytest.mark.usefixtures("three_trials")
def test_the_metric_that_counts_stands_before_all_others(home: Home, cli: Cli) -> None:
    """Lists show the searcher's metric of an experiment first, or else a validation metric."""
    with home.experiment(1).edit() as record:
        record.searcher_metric = SearcherMetric(name="loss")

    listed = cli("trial", "list", "--experiment", "1", COLUMNS="200").output.splitlines()[0].split()
    described = cli("experiment", "describe", "1", COLUMNS="200").output
    asked = cli("experiment", "describe", "1", "--metric", "accuracy", COLUMNS="200").output

    assert listed[4:6] == ["validation.loss", "accuracy"]
    assert "ID  State      Steps  validation.loss" in described
    assert "ID  State      Steps  accuracy" in asked


def test_a_long_hyperparameter_stands_behind_short_ones(home: Home, cli: Cli) -> None:
    """A long hyperparameter comes after short ones, so that a narrow table drops it first."""
    for number in range(2):
        hparams = {"data": f"/data/sets/of-many-pictures/part-{number}", "lr": 0.1 * (number + 1)}
        new_attempt(new_trial(home, hparams=hparams)).end("completed")

    head = cli("trial", "list", COLUMNS="200").output.splitlines()[0].split()

    assert head[4:6] == ["lr", "data"]


def test_a_metric_with_the_name_of_a_hyperparameter_is_told_apart(home: Home, cli: Cli) -> None:
    """A metric named like a hyperparameter or a fixed column is shown with its group."""
    for number in (1, 2):
        training = new_attempt(new_trial(home, hparams={"dropout": 0.1 * number}))
        training.report(1, dropout=0.3 * number, state=number)
        training.end("completed")

    head, _, first, *_ = cli("trial", "list", COLUMNS="200").output.splitlines()

    assert head.split()[:7] == [
        "ID",
        "Experiment",
        "State",
        "Steps",
        "training.dropout",
        "hparams.dropout",
        "training.state",
    ]
    assert first.split()[4:7] == ["0.3", "0.1", "1"]


def test_what_a_trainer_counts_stands_last(home: Home, cli: Cli) -> None:
    """A trainer's counts of batches and epochs are the last columns, since steps say the same."""
    for _ in range(2):
        training = new_attempt(new_trial(home))
        for steps in (10, 20):
            training.report(steps, "validation", batches=steps, epochs=steps / 10, loss=1 / steps)
        training.end("completed")

    head = cli("trial", "list", COLUMNS="200").output.splitlines()[0].split()

    assert head[4:6] == ["loss", "Started"]
    assert head[-3:] == ["Attempts", "batches", "epochs"]


@pytest.mark.usefixtures("three_trials")
def test_trials_are_chosen_by_a_condition(cli: Cli) -> None:
    """--where compares hyperparameters, last values, extremes and states."""
    assert ids(cli, "--where", "lr<=0.01 and state=error") == [2]
    assert ids(cli, "--where", "model.layers >= 1") == [2, 3]
    assert ids(cli, "--where", "max.accuracy > 0.74 or training.loss < 0") == [1, 2]
    assert ids(cli, "--where", "not accuracy > 0") == [3]
    assert cli("trial", "list", "--where", "lr > 1").output == "No trial fulfils the condition.\n"


@pytest.mark.usefixtures("three_trials")
def test_metrics_are_read_of_the_shown_trials_only_unless_a_name_chooses(home: Home) -> None:
    """Without a condition or an order, nothing is read of the metrics of the trials that the limit leaves out."""
    with open_view(home) as view:
        plain = choose_trials(view, view.trials())
        shown = plain.facts_of(view, plain.rows[-1:])
        sorted_by_metric = choose_trials(view, view.trials(), sort="-accuracy")

    assert (len(plain.rows), plain.known) == (3, {})
    assert [(one.row.trial_id, one.metrics) for one in shown] == [(3, {"training": {"loss": 0.5}})]
    assert [row.trial_id for row in sorted_by_metric.rows] == [2, 1, 3]
    assert [*sorted_by_metric.known] == [1, 2, 3]


@pytest.mark.usefixtures("three_trials")
def test_the_newest_trials_are_listed_as_of_now(home: Home, cli: Cli) -> None:
    """Trials that others have archived, labelled, deleted, begun or resumed since the last list are in the next one."""

    def shown(*options: str) -> tuple[list[int], str]:
        answer = cli("trial", "list", "--json", "--fields", "trial_id,labels,num_attempts", "--limit", "2", *options)
        return [one["trial_id"] for one in json.loads(answer.output)], answer.output

    before = shown()[0]
    trials.archive(home, 3)
    trials.label(home, 1, add=["seen"])
    archived, told = shown()
    everything = shown("--all")[0]
    new_attempt(home.folder(3)).end("completed")
    resumed = shown()
    trials.delete(home, 2)
    fourth = new_trial(home).trial_id
    later = shown()[0]
    for each in (1, 3, fourth):
        trials.archive(home, each)

    assert (before, archived, everything) == ([2, 3], [1, 2], [2, 3])
    assert "seen" in told
    assert resumed[0] == [2, 3] and '"num_attempts": 2' in resumed[1]
    assert later == [3, 4]
    assert cli("trial", "list").output == "No trial fulfils the condition.\n"
    assert cli("trial", "list", "-q", "--all").output.split() == ["1", "3", "4"]


@pytest.mark.usefixtures("three_trials")
def test_trials_are_ordered_by_a_value(cli: Cli) -> None:
    """--sort puts trials without the value last in both directions and shows the value first."""
    listed = cli("trial", "list", "--sort", "-min.loss", "--column", "reason", COLUMNS="200").output

    assert ids(cli, "--sort", "accuracy") == [1, 2, 3]
    assert ids(cli, "--sort", "-accuracy") == [2, 1, 3]
    assert listed.splitlines()[0].split()[4:6] == ["Reason", "min.loss"]


@pytest.mark.usefixtures("three_trials")
def test_a_name_that_no_trial_has_is_pointed_at(cli: Cli) -> None:
    """An unknown name in a condition is marked, and similar names are suggested."""
    refused = cli("trial", "list", "--where", "lr>0 and acuracy>1")
    unsorted = cli("trial", "list", "--sort", "-acuracy")

    assert (refused.status, unsorted.status) == (2, 2)
    assert "no trial has a hyperparameter or a metric 'acuracy': did you mean accuracy" in refused.errors
    assert "  lr>0 and acuracy>1\n           ^" in refused.errors
    assert "did you mean accuracy" in unsorted.errors


@pytest.mark.usefixtures("three_trials")
def test_trials_are_found_by_their_names_and_notes(cli: Cli) -> None:
    """Trials can be found by name and notes, and lists have a Name column once a trial has a name."""
    before = cli("trial", "list", COLUMNS="200").output
    renamed = cli("trial", "rename", "2", "the good one")
    cli("trial", "note", "1", "A *wide* model.")
    cli("trial", "note", "1", "It diverges.", "--append")

    assert ids(cli, "--where", "name='the good one'") == [2]
    assert ids(cli, "--where", "notes contains diverges and not name contains good") == [1]
    assert "Name" not in before
    assert "the good one" in cli("trial", "list", COLUMNS="200").output
    assert renamed.output == "the name of trial 2: the good one\n"
    assert cli("trial", "note", "1").output == "A *wide* model.\n\nIt diverges.\n"
    assert "Notes" in cli("trial", "describe", "1").output
    assert cli("trial", "rename", "9", "nobody").status == 3


@pytest.mark.usefixtures("three_trials")
def test_trials_are_found_by_their_labels(cli: Cli) -> None:
    """Trials can be found by label; an empty label is refused and changes nothing."""
    cli("trial", "label", "1", "good", "fast")
    cli("trial", "label", "2", "good")
    taken = cli("trial", "label", "2", "fast", "good", "unknown", "--remove")
    refused = cli("trial", "label", "3", "good", "")

    assert ids(cli, "--label", "good", "--label", "fast") == [1]
    assert ids(cli, "--where", "label=fast") == [1]
    assert taken.output == "labels of trial 2: none\n"
    assert refused.status == 2
    assert json.loads(cli("trial", "describe", "3", "--json").output)["labels"] == []
    assert cli("trial", "label", "9", "good").status == 3


@pytest.mark.usefixtures("three_trials")
def test_an_experiment_shows_its_trials_and_the_best(cli: Cli) -> None:
    """`describe --metric` shows the best trial over all validations and the experiment's trials."""
    described = cli("experiment", "describe", "digits", "--metric", "accuracy", "--larger-is-better")
    smallest = json.loads(cli("experiment", "describe", "1", "--metric", "loss", "--json").output)
    unknown = cli("experiment", "describe", "1", "--metric", "acuracy")
    unasked = json.loads(cli("experiment", "describe", "1", "--json").output)

    assert "trial 2, with accuracy 0.95" in described.output
    assert [line.split()[0] for line in described.output.splitlines()[-4:-1]] == ["2", "3", "(not"]
    assert smallest["best"] == {
        "trial_id": 1, "metric": "loss", "value": 1.5, "steps_completed": 2, "checkpoint": None
    }  # fmt: skip
    assert [trial["trial_id"] for trial in smallest["trials"]] == [1, 2, 3]
    assert (unknown.status, unasked["best"]) == (2, None)
    assert "--metric names one of: accuracy, loss" in " ".join(unknown.errors.split())


def test_a_description_tells_the_code_and_the_machine(home: Home, cli: Cli) -> None:
    """A description shows the commit, uncommitted changes, package versions and the machine."""
    folder = new_trial(home)
    record = EnvironmentRecord(
        git_commit="0c1a4a1e",
        git_is_dirty=True,
        python="3.11.7",
        packages={"torch": "2.13.0", "numpy": "2.3.1"},
        host="node3",
        num_cpus=16,
        memory_bytes=128 << 30,
        gpus=("NVIDIA H100",),
    )
    folder.write_environment(1, record)
    new_attempt(folder).end()

    described = cli("trial", "describe", "1").output
    as_json = json.loads(cli("trial", "describe", "1", "--json").output)

    lines = {" ".join(line.split()) for line in described.splitlines()}
    assert "Git commit 0c1a4a1e (with changes that were not committed)" in lines
    assert "Packages torch 2.13.0, numpy 2.3.1" in lines
    assert "Machine node3, 16 CPUs, 128.0 GiB, NVIDIA H100" in lines
    assert as_json["environment"]["packages"]["torch"] == "2.13.0"


@pytest.mark.usefixtures("three_trials")
def test_several_trials_get_a_label_at_once(cli: Cli) -> None:
    """The first arguments of `trial label` are trials and the others labels; `list --quiet` prints trials for it."""
    listed = cli("trial", "list", "--where", "lr<=0.01", "--quiet")
    labelled = cli("trial", "label", *listed.output.split(), "paper")
    without_label = cli("trial", "label", "1", "2")
    of_unknown = cli("trial", "label", "1", "9", "late")

    assert listed.output == "2\n3\n"
    assert labelled.output == "labels of trial 2: paper\nlabels of trial 3: paper\n"
    assert (without_label.status, of_unknown.status) == (2, 3)
    assert "give the numbers of trials, then labels" in without_label.errors
    assert (ids(cli, "--label", "paper"), ids(cli, "--label", "late")) == ([2, 3], [])
    assert cli("trial", "list", "--where", "lr>1", "-q").output == ""


@pytest.fixture
def shadowing_trials(home: Home) -> list[dict[str, str]]:
    """Trials whose hyperparameters and metrics have the names of everything else that a trial has."""
    names = [
        "steps",
        "state",
        "id",
        "experiment",
        "attempts",
        "reason",
        "label",
        "name",
        "seed",
        "lr",
        "trial_id",
        "duration",
    ]
    given = [{name: f"{name} {number}" for name in names} for number in (1, 2)]
    for hparams in given:
        dotted = {"a.b": 1, "a": {"b": 2}, "validation": {"loss": 3}, "trial": {"state": 4}}
        training = new_attempt(new_trial(home, hparams={**hparams, **dotted}))
        training.report(7, "validation", loss=0.5, lr=0.25, state=9)
        training.report(7, loss=0.75, progress=1)
        training.end("completed")
    return given


def test_every_column_is_named_so_that_it_means_one_thing(
    home: Home, cli: Cli, shadowing_trials: list[dict[str, str]]
) -> None:
    """A column's name in CSV, tables and the page also works in conditions, sorting and grouping."""
    rows = list(csv.DictReader(io.StringIO(cli("trial", "list", "--csv").output)))
    head = cli("trial", "list", COLUMNS="2000").output.splitlines()[0].split()
    visitor = Visitor(home)
    try:
        columns = [column["name"] for column in visitor.question("/columns")["columns"] if column["kind"] != "field"]
        answer = visitor.question("/runs", columns=columns, sort="id")
    finally:
        visitor.close()

    for name in shadowing_trials[0]:
        assert [row[f"hparams.{name}" if name != "seed" else name] for row in rows] == [f"{name} 1", f"{name} 2"]
    assert [rows[0][name] for name in ("a.b", "a\\.b", "steps_completed", "trial.seed")] == ["2", "1", "7", "7"]
    assert [rows[0][name] for name in ("metrics.validation.loss", "hparams.validation.loss")] == ["0.5", "3"]
    assert [rows[0][name] for name in ("trial.trial_id", "hparams.trial.state")] == ["1", "4"]
    titles = {"Reason", "Started", "Labels", "Attempts"}  # of columns that every table has
    with open_view(home) as view:
        for name in {*rows[0], *head[6:]} - titles:
            chosen = choose_trials(view, view.trials(), sort=name, columns=[name], with_archived=True)
            first = chosen.known[1]
            value = str(cell(first.value(name)))
            assert rows[0].get(name, value) == value, name
    # On the page, where metrics always have their group, a column of this name is a metric.
    assert answer["rows"][0] == [first.metric(name) or first.value(name) for name in columns]
