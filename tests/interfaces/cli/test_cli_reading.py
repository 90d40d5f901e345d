"""What was recorded is shown to people in tables and to programs in JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from interfaces.cli.commands import Cli, StartCli
from interfaces.cli.recorded import new_attempt, new_trial, store
from processes import wait_for

from core_sdk import core
from core_sdk._execution.steering import trials
from core_sdk._ground.records import Report
from core_sdk._ground.version import __version__
from core_sdk._home import Home
from core_sdk._interfaces.cli.trial.description import describe_trial

HOSTILE = "=1+1 \x1b[31m[bold]/\u202e\nnext"


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture
def two_trials(home: Home) -> None:
    """Trial 1 of "digits", resumed once, with two checkpoints; trial 2 of an experiment with a hostile name."""
    folder = new_trial(home, hparams={"lr": 0.1})
    first = new_attempt(folder)
    for step in (1, 2, 3):
        first.report(step, loss=1 / step)
    first.report(3, "validation", accuracy=0.5, worst="NaN", best="-Infinity")
    store(first, "a", 2)
    first.die()
    second = new_attempt(folder, resumed_steps=2)
    second.report(3, loss=0.25)
    store(second, "b", 3)
    second.end()
    hostile = new_attempt(new_trial(home, experiment=HOSTILE))
    hostile.report(1, HOSTILE, **{HOSTILE: 1})
    hostile.end("error", error=f"ValueError: {HOSTILE}")


@pytest.mark.usefixtures("two_trials")
def test_lists_come_as_tables_json_and_csv(cli: Cli) -> None:
    """Tables, JSON and CSV have the same rows."""
    table = cli("trial", "list", "--experiment", "digits")
    objects = json.loads(cli("trial", "list", "--json").output)
    rows = rows_of(cli("trial", "list", "--csv").output)

    assert table.status == 0
    assert "digits" in table.output
    assert "COMPLETED" in table.output
    assert "ERROR" not in table.output
    assert [(one["trial_id"], one["state"], one["num_attempts"]) for one in objects] == [
        (1, "COMPLETED", 2),
        (2, "ERROR", 1),
    ]
    assert objects[0]["hparams"] == {"lr": 0.1}
    assert [(row["trial_id"], row["state"], row["hparams"]) for row in rows] == [
        ("1", "COMPLETED", '{"lr": 0.1}'),
        ("2", "ERROR", "{}"),
    ]


@pytest.mark.usefixtures("two_trials")
def test_metrics_come_in_order_without_what_is_superseded(cli: Cli) -> None:
    """Superseded reports are left out, and NaN and infinities are strings in JSON."""
    reports = json.loads(cli("trial", "metrics", "1", "--json").output)

    assert [set(report) for report in reports] == [
        {"trial_id", "attempt", "rank", "group", "steps_completed", "time", "metrics"}
    ] * len(reports)
    losses = [
        (report["attempt"], report["steps_completed"], report["metrics"]["loss"])
        for report in reports
        if report["group"] == "training"
    ]
    assert losses == [(1, 1, 1.0), (1, 2, 0.5), (2, 3, 0.25)]


def test_each_report_is_a_line_of_json_as_python_writes_it(cli: Cli, home: Home) -> None:
    """Each report is the line that Python's json would write, whatever its names and values."""
    odd: dict[str, Any] = {'%d "{}"': 1e16, "ü": "NaN", " ": -0.0}
    training = new_attempt(new_trial(home))
    for step in range(0, 3000, 3):
        training.report(step, loss=step / 7, rate=1e-5, large=2**63)
        training.report(step + 1, "100 %s {ü}", **odd)
        training.report(step + 2)
    training.append(Report(0.0, "generic", 3000, {"yes": 1}, json_metrics={"no": None, "text": "%s, 1", "list": [1.5]}))
    training.end()

    first, *lines, last = cli("trial", "metrics", "1", "--json", "--superseded").output.splitlines()

    assert (first, last) == ("[", "]")
    assert lines == [f"{json.dumps(json.loads(line.removesuffix(',')))}," for line in lines[:-1]] + [lines[-1]]
    reports = json.loads("".join(lines).join("[]"))
    assert [report["steps_completed"] for report in reports] == [*range(3000), 3000]
    assert [report["metrics"] for report in reports[:3]] == [
        {"loss": 0.0, "rate": 1e-5, "large": 2**63},
        odd,
        {},
    ]
    assert reports[-1]["metrics"] == {"yes": 1, "no": None, "text": "%s, 1", "list": [1.5]}


@pytest.mark.usefixtures("two_trials")
def test_superseded_reports_are_shown_when_asked_for(cli: Cli) -> None:
    """--superseded shows superseded reports with a flag."""
    reports = json.loads(cli("trial", "metrics", "1", "--json", "--superseded", "--group", "validation").output)

    assert [report["metrics"] for report in reports] == [{"accuracy": 0.5, "worst": "NaN", "best": "-Infinity"}]
    assert [report["is_superseded"] for report in reports] == [True]


@pytest.mark.usefixtures("two_trials")
def test_metrics_in_csv_are_one_value_a_row(cli: Cli) -> None:
    """Names that a spreadsheet would run are disarmed there, and only there."""
    losses = rows_of(cli("trial", "metrics", "1", "--csv", "--group", "training").output)
    hostile = rows_of(cli("trial", "metrics", "2", "--csv").output)

    assert [(row["steps_completed"], row["name"], float(row["value"])) for row in losses] == [
        ("1", "loss", 1.0),
        ("2", "loss", 0.5),
        ("3", "loss", 0.25),
    ]
    assert [(row["group"], row["name"], row["value"]) for row in hostile] == [(f"'{HOSTILE}", f"'{HOSTILE}", "1")]


def test_metrics_that_are_no_numbers_are_shown_and_not_plotted(cli: Cli, home: Home) -> None:
    """Metrics that are not numbers are shown as JSON, and only numbers are plotted."""
    metrics = {"table": [[1, "a\x1b"], [0.5, None]], "yes": True, "none": None, "text": "=1", "loss": 0.5}
    with core.init() as context:
        context.train.report_metrics("generic", 1, metrics)

    (report,) = json.loads(cli("trial", "metrics", "1", "--json").output)
    values = {row["name"]: row["value"] for row in rows_of(cli("trial", "metrics", "1", "--csv").output)}
    table = cli("trial", "metrics", "1", COLUMNS="200").output
    plot = cli("trial", "metrics", "1", "--plot").output

    assert report["metrics"] == metrics
    assert json.loads(values.pop("table")) == metrics["table"]
    assert values == {"yes": "true", "none": "null", "text": "'=1", "loss": "0.5"}
    assert '[[1, "a\\u001b"], [0.5, null]]' in table
    assert [line for line in plot.splitlines() if line.startswith("generic")] == ["generic loss"]


@pytest.mark.usefixtures("two_trials")
def test_metrics_are_tabled_and_plotted_for_people(cli: Cli) -> None:
    """Within 80 columns without a terminal; a table says when it does not show all."""
    table = cli("trial", "metrics", "1", "--last", "2")
    plot = cli("trial", "metrics", "1", "--plot", COLUMNS="80")

    assert "training (the last 2 of 3 reports)" in table.output
    assert "0.25" in table.output
    assert "training loss" in plot.output
    assert "⠀" not in plot.output
    assert max(map(len, plot.output.splitlines())) <= 80


@pytest.mark.usefixtures("two_trials")
def test_hostile_names_reach_programs_whole_and_terminals_disarmed(cli: Cli) -> None:
    """Hostile names are unchanged in JSON, and escaped in every table that could show them."""
    experiments = json.loads(cli("experiment", "list", "--json").output)
    shown = [
        cli(*arguments).output
        for arguments in (
            ("trial", "list", "--experiment", HOSTILE),
            ("trial", "describe", "2"),
            ("trial", "metrics", "2"),
            ("trial", "metrics", "2", "--plot"),
            ("experiment", "describe", HOSTILE),
        )
    ]

    assert experiments[1]["name"] == HOSTILE
    for output in shown:
        assert "\x1b" not in output
        assert "\u202e" not in output
        assert "\\x1b[31m[bold]/\\u202e\\nnext" in output


@pytest.mark.usefixtures("two_trials")
def test_a_description_is_one_object(cli: Cli) -> None:
    """`describe --json` prints one object for a trial, a checkpoint or an experiment."""
    trial = json.loads(cli("trial", "describe", "1", "--json").output)
    checkpoint = json.loads(cli("checkpoint", "describe", "b", "--json").output)
    experiment = json.loads(cli("experiment", "describe", "digits", "--json").output)

    assert trial["latest_checkpoint"] == "b"
    assert trial["summary"]["training"]["loss"]["last"] == 0.25
    assert (checkpoint["trial_id"], checkpoint["steps_completed"], checkpoint["state"]) == (1, 3, "COMPLETED")
    assert (experiment["experiment_id"], experiment["num_trials"]) == (1, 1)


def test_a_very_wide_trial_is_described_in_short(home: Home) -> None:
    """Of many hyperparameters, labels and metrics the first 100 are shown, with the number of the others."""
    folder = new_trial(home, hparams={"model": {f"h{number}": number for number in range(250)}})
    training = new_attempt(folder)
    training.report(1, "training", **{f"m{number}": number for number in range(300)})
    training.end()
    trials.label(home, 1, add=[f"label {number:03d}" for number in range(120)])

    value, told = describe_trial(home, 1)

    assert str(told["Hyperparameters"]).endswith('"h99": 99}} and 150 more: --json has all')
    assert str(told["Labels"]).endswith("label 099 and 20 more: --json has all")
    assert told["Metrics"] == "the first 100 and 200 more: --json has all"
    assert ("training m99" in told, "training m100" in told) == (True, False)
    assert (len(value["hparams"]["model"]), len(value["labels"]), len(value["summary"]["training"])) == (250, 120, 300)


@pytest.mark.usefixtures("two_trials")
def test_what_does_not_exist_has_a_status_of_its_own(cli: Cli) -> None:
    """An unknown object ends with status 3 and wrong usage with 2, without a traceback."""
    unknown = [
        cli(*arguments)
        for arguments in (
            ("trial", "metrics", "9", "--json"),
            ("trial", "logs", "9"),
            ("trial", "describe", "first"),
            ("experiment", "describe", "nothing"),
            ("checkpoint", "verify", "nothing"),
        )
    ]
    wrong = [
        cli(*arguments)
        for arguments in (
            ("trial", "list", "--json", "--csv"),
            ("trial", "describe"),
            ("experiment", "label", "1", ""),
        )
    ]

    assert [ended.status for ended in unknown] == [3] * len(unknown)
    assert [ended.status for ended in wrong] == [2] * len(wrong)
    assert [ended.output for ended in unknown] == [""] * len(unknown)
    assert not any("Traceback" in ended.errors for ended in unknown + wrong)


def test_an_empty_home_is_no_failure(home: Home, cli: Cli) -> None:
    """A friendly line for people, an empty list for programs; and looking does not make a home."""
    table = cli("trial", "list")
    as_json = cli("experiment", "list", "--json")

    assert (table.status, as_json.status) == (0, 0)
    assert "core-sdk run -- python train.py" in table.output
    assert json.loads(as_json.output) == []
    assert not home.root.exists()


@pytest.mark.usefixtures("two_trials")
def test_the_index_can_be_made_anew(home: Home, cli: Cli) -> None:
    """`index rebuild` restores a damaged database from the journals."""
    home.database.write_bytes(b"this is no database")

    rebuilt = cli("index", "rebuild")

    assert rebuilt.status == 0
    assert "2 trials" in rebuilt.output
    assert len(json.loads(cli("trial", "list", "--json").output)) == 2


def test_help_tells_the_exit_statuses(cli: Cli) -> None:
    """Help lists the exit statuses and the address of the documentation."""
    shown = " ".join(cli("--help").output.split())
    version = cli("--version")

    assert all(status in shown for status in ("Exit status", " 3 ", " 75 ", "126", "127"))
    assert "Documentation: https://" in shown
    assert version.output == f"core-sdk {__version__}\n"


def test_the_shell_can_complete_commands(cli: Cli) -> None:
    """Shell completion, as `core-sdk --install-completion` installs it, completes a command."""
    completed = cli(_CORE_SDK_COMPLETE="bash_complete", COMP_WORDS="core-sdk tri", COMP_CWORD="1")

    assert completed.output.split() == ["plain,trial"]


@pytest.mark.parametrize(
    ("shell", "script", "start_up"),
    [
        ("bash", ".bash_completions/core-sdk.sh", ".bashrc"),
        ("zsh", ".zfunc/_core-sdk", ".zshrc"),
        ("fish", ".config/fish/completions/core-sdk.fish", None),
    ],
)
def test_completion_is_installed_once(cli: Cli, tmp_path: Path, shell: str, script: str, start_up: str | None) -> None:
    """The script is written to where the shell reads it, and once installed it is replaced, not added again."""
    shown = cli("--show-completion", HOME=str(tmp_path), SHELL=f"/bin/{shell}")

    for _ in range(2):
        assert cli("--install-completion", HOME=str(tmp_path), SHELL=f"/bin/{shell}").status == 0

    assert (tmp_path / script).read_text().strip() == shown.output.strip() != ""
    if start_up is not None:
        assert (tmp_path / start_up).read_text().count(str(tmp_path / Path(script).parent)) == 1


def test_no_completion_for_another_shell(cli: Cli) -> None:
    """A shell that is not known is named."""
    refused = cli("--install-completion", SHELL="/bin/csh")

    assert refused.status == 2
    assert "'/bin/csh'" in refused.errors


@pytest.mark.usefixtures("two_trials")
def test_a_reader_may_leave_early(start_cli: StartCli) -> None:
    """`core-sdk trial metrics 1 --json | head -1` ends without a traceback."""
    metrics = start_cli("trial", "metrics", "1", "--json")
    assert metrics.process.stdout is not None
    assert metrics.process.stderr is not None

    metrics.process.stdout.close()

    assert "Traceback" not in metrics.process.stderr.read()
    assert metrics.process.wait(60) == 1


@pytest.mark.usefixtures("two_trials")
def test_tensorboard_shows_trials_and_follows_those_that_train(start_cli: StartCli, cli: Cli) -> None:
    """TensorBoard shows ended and running trials until Ctrl-C, and a port in use is named."""
    with core.init() as context:
        context.train.report_training_metrics(1, {"early": 0.5})
        board = start_cli("trial", "tensorboard", "1", "3", "--port", "0")
        assert board.process.stderr is not None
        url = next(found[1] for line in board.process.stderr if (found := re.search(r"(http://\S+/);", line)))
        wait_for(lambda: all(name in _text_at(f"{url}data/plugin/scalars/tags") for name in ("loss", "early")))
        taken = cli("trial", "tensorboard", "1", "--port", url.rpartition(":")[2].strip("/"))

        context.train.report_training_metrics(2, {"late": 0.5})
        wait_for(lambda: "late" in _text_at(f"{url}data/plugin/scalars/tags"))
    os.killpg(board.process.pid, signal.SIGINT)

    assert board.process.wait(60) == 0
    assert "--port" in taken.errors


def _text_at(url: str) -> str:
    with urllib.request.urlopen(url) as answer:
        content: bytes = answer.read()
    return content.decode()


@pytest.mark.usefixtures("two_trials")
@pytest.mark.parametrize("closing", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_failure(closing: str) -> None:
    """Commands succeed if their standard streams are closed."""
    command = f"{shlex.quote(sys.executable)} -m core_sdk._interfaces.cli trial list {closing}"

    finished = subprocess.run(["sh", "-c", command], capture_output=True, text=True)

    assert (finished.returncode, finished.stderr) == (0, "")


@pytest.mark.parametrize("command", [("trial", "describe"), ("experiment", "describe")])
def test_no_number_is_too_large_to_be_unknown(cli: Cli, command: tuple[str, ...]) -> None:
    """A number too large for SQLite is answered like any unknown number."""
    finished = cli(*command, str(10**30))

    assert finished.status == 3
    assert f"{10**30}" in finished.errors
    assert "Traceback" not in finished.errors


def test_describe_has_the_whole_error_and_lists_its_first_line(home: Home, cli: Cli) -> None:
    """The reason of a trial is the error's type and first line; `trial describe` has the rest, with the traceback."""
    with pytest.raises(RuntimeError), core.init():
        raise RuntimeError("CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA`\n")

    described = cli("trial", "describe", "1").output
    value = json.loads(cli("trial", "describe", "1", "--json").output)

    assert value["reason"] == "RuntimeError: CUDA error: out of memory"
    assert "Compile with `TORCH_USE_CUDA_DSA`" in value["error"]
    assert "Compile with `TORCH_USE_CUDA_DSA`" in described and "Traceback (most recent call last)" in described
