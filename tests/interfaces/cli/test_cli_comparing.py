"""Trials are compared side by side, and their curves are drawn over each other or followed."""

from __future__ import annotations

import importlib.util
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from interfaces.cli.commands import Cli, StartCli
from interfaces.cli.recorded import new_attempt, new_trial

from core_sdk._home import Home


@pytest.fixture
def two_trials(home: Home) -> None:
    """Trial 1, which was resumed at step 2, and trial 2; they differ in one hyperparameter and in what they reached."""
    for lr in (0.1, 0.01):
        folder = new_trial(home, hparams={"seed": 7, "lr": lr})
        training = new_attempt(folder)
        for step in (1, 2, 3):
            training.report(step, "training", loss=lr / step, **{"<&>\x1b": step})
        training.die()
    resumed = new_attempt(home.trial(1), resumed_steps=2)
    resumed.report(3, loss=0.5)
    resumed.end()


@pytest.mark.usefixtures("two_trials")
def test_what_differs_between_compared_trials_comes_first(cli: Cli) -> None:
    """Values that differ between the trials are listed first, and --metric adds curves."""
    compared = cli("compare", "1", "2", "1")
    with_curves = cli("compare", "1", "2", "--metric", "loss")
    as_json = json.loads(cli("compare", "1", "2", "--json").output)

    rows = [line.split() for line in compared.output.splitlines() if line]
    assert rows[0] == ["Trial", "1", "2"]
    assert [row[0] for row in rows[2:]] == ["experiment", "state", "steps", "loss", "lr", "<&>\\x1b", "seed"]
    assert rows[6] == ["lr", "0.1", "0.01"]
    assert with_curves.output.startswith(compared.output)
    assert "training loss\n" in with_curves.output
    assert "  B trial 2\n" in with_curves.output
    assert [one["hparams"]["lr"] for one in as_json] == [0.1, 0.01]


@pytest.mark.usefixtures("two_trials")
def test_curves_are_drawn_into_a_file(cli: Cli, tmp_path: Path) -> None:
    """The SVG is well-formed for any metric name, the HTML embeds it, and both mark the resume."""
    shown = cli("trial", "plot", "1", "--output", "curves.svg")
    cli("trial", "plot", "1", "-o", "curves.html", "--metric", "loss")

    picture = ElementTree.parse(tmp_path / "curves.svg").getroot()
    texts = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    page = (tmp_path / "curves.html").read_text()
    assert shown.output == "curves.svg\n"
    assert {"training loss", "training <&>�", "resumed", "trial 1"} <= set(texts)
    assert page.startswith("<!doctype html>")
    assert "training loss" in page
    assert "&lt;&amp;&gt;" not in page


@pytest.mark.usefixtures("two_trials")
def test_a_chart_for_a_paper_has_the_words_and_the_size_that_are_asked_for(cli: Cli, tmp_path: Path) -> None:
    """Titles, labels and sizes apply to pictures only, and a title needs a single chart."""
    look = ["--title", "Runs", "--y-label", "nats", "--log-y", "--size", "600x400"]
    drawn = cli("trial", "plot", "1", "--metric", "loss", *look, "-o", "paper.svg")
    in_terminal = cli("trial", "plot", "1", "--log-y")
    several = cli("trial", "plot", "1", "--title", "Runs", "-o", "several.svg")
    tiny = cli("trial", "plot", "1", "--size", "1x1", "-o", "tiny.svg")

    picture = (tmp_path / "paper.svg").read_text()
    assert (drawn.status, 'viewBox="0 0 600 400"' in picture, ">nats<" in picture) == (0, True, True)
    assert [one.status for one in (in_terminal, several, tiny)] == [2, 2, 2]
    assert "give --output" in in_terminal.errors
    assert "--metric" in several.errors


@pytest.mark.usefixtures("two_trials")
def test_a_picture_in_png_needs_a_library(cli: Cli, tmp_path: Path) -> None:
    """Where it is missing, the error says how to install it."""
    drawn = cli("trial", "plot", "1", "-o", "curves.png")

    if importlib.util.find_spec("resvg_py"):
        assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    else:
        assert drawn.status == 1
        assert 'pip install "resvg-py>=' in drawn.errors


@pytest.mark.usefixtures("two_trials")
def test_a_picture_of_another_kind_is_refused(cli: Cli) -> None:
    """An unknown kind of picture is refused with a list of the known ones."""
    refused = cli("trial", "plot", "1", "-o", "curves.jpg")

    assert refused.status == 2
    assert ".svg, .html, .pdf, .png" in " ".join(refused.errors.split())


@pytest.mark.usefixtures("two_trials")
def test_one_metric_is_shown_alone(cli: Cli) -> None:
    """--metric works in every form of output; an unknown metric is refused with a list of the known ones."""
    table = cli("trial", "metrics", "1", "--metric", "loss").output
    reports = json.loads(cli("trial", "metrics", "1", "--metric", "loss", "--json").output)
    mistyped = [cli("trial", "metrics", "1", "--metric", "los", *form) for form in ((), ("--plot",), ("--json",))]

    of_training = json.loads(cli("trial", "metrics", "1", "--metric", "training.loss", "--json").output)

    assert "x1b" not in table
    assert [report["metrics"] for report in reports] == [{"loss": 0.1}, {"loss": 0.05}, {"loss": 0.5}]
    assert of_training == [report for report in reports if report["group"] == "training"]
    assert [refused.status for refused in mistyped] == [3] * 3
    assert all("no metric 'los' to show. The metrics: loss" in refused.errors for refused in mistyped)


def test_reports_are_followed_until_the_trial_ends(home: Home, start_cli: StartCli, cli: Cli) -> None:
    """--follow prints existing and new reports, one per line, until the trial ends."""
    training = new_attempt(new_trial(home))
    training.report(1, loss=1.0)
    following = start_cli("trial", "metrics", "1", "--follow", "--json")
    assert following.process.stdout is not None

    first = json.loads(following.process.stdout.readline())
    training.report(2, loss=0.5)
    second = json.loads(following.process.stdout.readline())
    training.report(3, "validation", loss=0.25)
    training.end()
    rest = following.process.stdout.read()
    text = cli("trial", "metrics", "1", "--follow", "--metric", "loss", "--group", "training")
    csv = cli("trial", "metrics", "1", "--follow", "--csv")

    assert [first["steps_completed"], second["steps_completed"]] == [1, 2]
    assert [json.loads(line)["group"] for line in rest.splitlines()] == ["validation"]
    assert following.process.wait(60) == 0
    assert re.sub(" +", " ", text.output) == " 1 training loss=1\n 2 training loss=0.5\n"
    assert csv.output.count("\n") == 4


@pytest.fixture
def seeds(home: Home) -> None:
    """Trials 1 to 4: two learning rates and two seeds; the loss is lr + seed."""
    for lr, seed in ((0.5, 0), (0.5, 1), (0.25, 0), (0.25, 1)):
        training = new_attempt(new_trial(home, hparams={"seed": seed, "lr": lr}))
        for step in (1, 2, 3):
            training.report(step, "validation", loss=lr + seed)
        training.end()


@pytest.mark.usefixtures("seeds")
def test_groups_are_compared(cli: Cli, tmp_path: Path) -> None:
    """`compare --group-by` has a row for each group of trials, and draws a curve for each."""
    everything = cli("compare", "--group-by", "lr")
    with_curves = cli("compare", "1", "2", "--group-by", "seed", "--best", "max.loss", "--metric", "loss")
    as_json = json.loads(cli("compare", "--group-by", "lr", "--json").output)
    drawn = cli("trial", "plot", "1", "2", "3", "4", "--group-by", "lr", "--band", "range", "-o", "groups.svg")

    rows = [line.split() for line in everything.output.splitlines() if line]
    assert rows[0] == ["lr", "Trials", "Best", "min.loss", "loss"]
    assert rows[2:] == [["0.25", "2", "3", "0.25", "0.75", "±", "0.71"], ["0.5", "2", "1", "0.5", "1", "±", "0.71"]]
    assert "validation.loss: mean by seed, at common steps" in with_curves.output
    assert "  B seed 1 (n = 1)\n" in with_curves.output
    assert [(one["values"], one["trials"], one["best_trial"]) for one in as_json] == [
        ({"lr": 0.25}, [3, 4], 3), ({"lr": 0.5}, [1, 2], 1),
    ]  # fmt: skip
    assert as_json[0]["metrics"]["validation.loss"]["count"] == 2
    assert drawn.output == "groups.svg\n"
    assert "by lr, at common steps" in (tmp_path / "groups.svg").read_text()


def test_curves_are_drawn_over_another_axis(home: Home, cli: Cli, tmp_path: Path) -> None:
    """--x draws curves over another metric or time; a metric that was not reported is named."""
    for slowness in (1, 2):
        training = new_attempt(new_trial(home, hparams={"lr": 0.1}))
        for step in (1, 2, 3, 4):
            training.report(step, loss=1 / step, tokens=1000 * step * slowness)
        training.end()

    of_trials = cli("compare", "1", "2", "--metric", "loss", "--x", "tokens")
    of_groups = cli("trial", "plot", "1", "2", "--group-by", "lr", "--metric", "loss", "--x", "training.tokens")
    drawn = cli("trial", "plot", "1", "--x", "time", "-o", "time.svg")
    without = cli("trial", "plot", "1", "2", "--group-by", "lr", "--x", "epochs")
    unknown = cli("trial", "plot", "1", "--x", "tokes")

    assert "training loss over training.tokens\n" in of_trials.output
    assert re.search(r"^ +1,?000 +8,?000$", of_trials.output, re.MULTILINE)
    assert "training.loss: mean by lr, at common training.tokens" in of_groups.output
    assert (drawn.output, without.status, unknown.status) == ("time.svg\n", 1, 3)
    assert "training loss over seconds since the start" in (tmp_path / "time.svg").read_text()
    assert "epochs was not reported with training.loss or training.tokens" in " ".join(without.errors.split())
    assert "The metrics: training.loss, training.tokens" in " ".join(unknown.errors.split())


def test_formulas_of_metrics_are_drawn(home: Home, cli: Cli, tmp_path: Path) -> None:
    """--formula has a chart of its own; a wrong one is marked at its place, and one without common steps is named."""
    training = new_attempt(new_trial(home))
    for step in (1, 2, 3, 4):
        training.report(step, loss=1 / step)
    training.report(2, "validation", loss=0.75)
    training.report(4, "validation", loss=1.0)
    training.report(5, "test", loss=1.0)
    training.end()
    gap = "validation.loss - training.loss"

    drawn = cli("trial", "plot", "1", "--formula", gap, "-o", "gap.svg")
    compared = cli("compare", "1", "--metric", "training.loss", "--formula", f"exp({gap})", "--x", "time")
    wrong = cli("trial", "plot", "1", "--formula", "training.loss - ")
    grouped = cli("trial", "plot", "1", "--formula", gap, "--group-by", "lr")
    apart = cli("trial", "plot", "1", "--formula", "training.loss / test.loss")

    picture = (tmp_path / "gap.svg").read_text()
    assert (drawn.output, f">{gap}<" in picture, "loss loss" in picture) == ("gap.svg\n", True, False)
    assert "training loss over seconds since the start\n" in compared.output
    assert f"exp({gap}) over seconds since the start\n" in compared.output
    assert (wrong.status, grouped.status, apart.status) == (2, 2, 1)
    assert "missing at the end" in wrong.errors
    assert "no curve of a group" in " ".join(grouped.errors.split())
    assert "no step has training.loss and test.loss" in " ".join(apart.errors.split())


@pytest.mark.usefixtures("seeds")
def test_what_is_compared_is_chosen_by_its_values(cli: Cli) -> None:
    """The first trials of a list, and metrics by a regular expression, or with their group."""
    trials = cli("compare", "--where", "lr=0.5", "--sort", "-loss", "--first", "1", "--metric", "/^val.*S$/")
    groups = cli("compare", "--experiment", "digits", "--where", "seed=1", "--group-by", "lr", "--metric", "/LOSS/")
    by_name = cli("trial", "plot", "1", "--metric", "validation.loss")
    unknown = cli("trial", "plot", "1", "--metric", "/los$/")

    assert trials.output.split()[:2] == ["Trial", "2"]
    assert all("validation loss\n" in one.output for one in (trials, by_name))
    assert [line.split()[:3] for line in groups.output.splitlines()[2:4]] == [["0.25", "1", "4"], ["0.5", "1", "2"]]
    assert "validation.loss: mean by lr" in groups.output
    assert (unknown.status, "no metric '/los$/' to show" in unknown.errors) == (3, True)


@pytest.mark.usefixtures("seeds")
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["compare", "1", "--first", "2"], "not both"),
        (["compare", "--where", "lrr=1"], "did you mean lr"),
        (["trial", "plot", "1", "--metric", "/(/"], "/(/ is no regular expression"),
        (["compare", "1", "--x", "time"], "--x is for curves"),
        (["experiment", "plot", "digits", "--x", "time"], "--x are for groups"),
        (["compare"], "give the numbers of trials"),
        (["compare", "--group-by", "lrr"], "did you mean lr"),
        (["compare", "--group-by", "lr", "--band", "wide"], "is none of"),
        (["compare", "1", "--best", "min.loss"], "--best is for groups"),
        (["compare", "1", "--experiment", "digits", "--group-by", "lr"], "not both"),
    ],
)
def test_a_mistake_in_groups_is_named(cli: Cli, words: list[str], problem: str) -> None:
    """Mistakes in groups and conditions end with status 2 and a hint."""
    refused = cli(*words)

    assert refused.status == 2
    assert problem in " ".join(refused.errors.split())
