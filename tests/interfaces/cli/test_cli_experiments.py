"""Experiments on the command line: submitted, steered, looked at."""

from __future__ import annotations

import json
import os
import pty
import signal
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from interfaces.cli.commands import COMMAND, Cli, StartCli
from interfaces.cli.recorded import new_trial
from masters import running_master
from processes import Script

from core_sdk._ground.records import SearchRecord
from core_sdk._home import Home

TRAIN = """
import time
from pathlib import Path
import core_sdk as det

with det.core.init() as context:
    info = det.get_cluster_info()
    latest = context.info.latest_checkpoint
    print("training with", info.trial.hparams["lr"], flush=True)
    for step in range(1, 4):
        context.train.report_validation_metrics(step, {"loss": info.trial.hparams["lr"] + 1 / step})
        while info.user_data.get("endless") and not context.preempt.should_preempt():
            time.sleep(0.01)
        if context.preempt.should_preempt():
            break
    with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
        (path / "weights.bin").write_bytes(b"weights")
"""
CONFIG = f"""
# what I try
name: digits
entrypoint: [{sys.executable}, train.py]
hyperparameters:
  lr: {{type: categorical, vals: [0.5, 0.25]}}
searcher: {{name: grid, metric: loss, max_concurrent_trials: 2}}
max_restarts: 0
"""


@pytest.fixture(autouse=True)
def master(home: Home) -> Iterator[None]:
    with running_master(Home.create(home.root)):
        yield


def test_a_command_is_submitted_as_an_experiment_with_one_trial(home: Home, cli: Cli, tmp_path: Path) -> None:
    """The trial runs in the current directory, has the options of `run`, and is started again after a failure."""
    (tmp_path / "once.py").write_text(
        "import sys\nfrom core_sdk import core\nwith core.init(distributed=core.DistributedContext()) as context:\n"
        "    print(sys.argv[1:], context.info.trial.hparams, len(context.info.slot_ids), flush=True)\n"
        "    context.info.trial.attempt > 1 or sys.exit(3)\n"
    )
    options = ["--hparam", "lr=0.5", "--slots", "2", "--label", "mine", "--max-restarts", "1", "--name", "once"]

    submitted = cli("submit", *options, "--follow", "--", sys.executable, "once.py", "${args}")
    wrong = cli("submit", "--nodes", "2", "--", "true")

    assert submitted.status == 0 and submitted.output.startswith("Created experiment 1\n")
    shown = "['--lr=0.5'] {'lr': 0.5} 2"
    assert [home.trial(1).log_path(attempt).read_text() for attempt in (1, 2)] == [f"{shown}\n"] * 2
    record = home.experiment(1).read()
    assert (record.name, record.labels, record.search and record.search.searcher) == ("once", ["mine"], "single")
    assert wrong.status == 2 and "give --engine slurm, too" in wrong.errors


@pytest.fixture(autouse=True)
def model(tmp_path: Path) -> Path:
    """The code directory `model` and the configuration `search.yaml`, where the commands run."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "train.py").write_text(TRAIN)
    (tmp_path / "search.yaml").write_text(CONFIG)
    return tmp_path / "model"


def create(cli: Cli, *options: str) -> int:
    ended = cli("experiment", "create", "search.yaml", "model", "--json", *options)
    assert ended.status == 0, ended.errors
    return int(json.loads(ended.output)["experiment_id"])


def search(home: Home, experiment_id: int) -> SearchRecord:
    found = home.experiment(experiment_id).read().search
    assert found is not None
    return found


def wait_until_running(home: Home, experiment_id: int) -> None:
    while search(home, experiment_id).num_running == 0:
        time.sleep(0.02)


def read_until_line_begins(script: Script, text: str) -> None:
    assert script.process.stdout is not None
    for line in script.process.stdout:
        if line.startswith(text):
            return
    pytest.fail(f"no line begins with {text!r}")


def test_a_followed_experiment_tells_what_happens(cli: Cli, home: Home) -> None:
    """Line by line where stdout is no terminal; the exit status says how it ended."""
    ended = cli("experiment", "create", "search.yaml", "model", "--follow")

    assert ended.status == 0, ended.errors
    lines = ended.output.splitlines()
    assert lines[0] == "Created experiment 1"
    assert "trial 1 begins: lr=0.5" in lines or "trial 2 begins: lr=0.5" in lines
    assert sum(": loss " in line for line in lines) == 6
    assert lines[-1] == "experiment 1: COMPLETED"
    assert search(home, 1).state == "COMPLETED"


def test_a_failed_experiment_tells_what_its_script_said_last(cli: Cli, model: Path) -> None:
    """A failed experiment shows the last line of its script's output."""
    (model / "train.py").write_text("print('begins')\nraise SystemExit('no data here')")

    ended = cli("experiment", "create", "search.yaml", "model", "--follow")

    assert ended.status == 1
    assert "ends with: no data here\n" in ended.errors


def test_an_experiment_waits_until_it_is_activated(cli: Cli, home: Home) -> None:
    """`wait` returns at its end, and says by its status whether it is COMPLETED."""
    experiment_id = create(cli, "--paused")
    paused = cli("e", "list", "--json")
    activated = cli("experiment", "activate", str(experiment_id))
    ended = cli("experiment", "wait", "digits")

    assert [(row["state"], row["num_trials"]) for row in json.loads(paused.output)] == [("PAUSED", 0)]
    assert activated.output == "experiment 1: ACTIVE\n"
    assert (ended.status, ended.output) == (0, "experiment 1: COMPLETED\n")


def test_several_experiments_are_killed_at_once(cli: Cli, home: Home) -> None:
    """If one experiment cannot be killed, the others are killed all the same."""
    first, second = create(cli, "--paused"), create(cli, "--paused")
    cli("experiment", "kill", str(first))

    killed = cli("experiment", "kill", str(first), str(second), "--json")
    waited = cli("experiment", "wait", str(first), str(second), "--json")

    assert killed.status == 1
    assert "experiment 1 has ended" in killed.errors
    assert [row["experiment_id"] for row in json.loads(killed.output)] == [second]
    assert waited.status == 1
    assert [row["state"] for row in json.loads(waited.output)] == ["CANCELED", "CANCELED"]


def test_a_pause_lets_trials_save_and_go_on_later(cli: Cli, home: Home) -> None:
    """A pause lets trials save and continue later, and a cancel ends them."""
    experiment_id = create(cli, "--config", "data.endless=true")
    wait_until_running(home, experiment_id)

    cli("experiment", "pause", str(experiment_id))
    while search(home, experiment_id).num_running:
        time.sleep(0.02)
    paused = search(home, experiment_id).state
    cli("experiment", "activate", str(experiment_id))
    wait_until_running(home, experiment_id)
    cli("experiment", "cancel", str(experiment_id))
    ended = cli("experiment", "wait", str(experiment_id))

    assert paused == "PAUSED"
    assert (ended.status, ended.output) == (1, "experiment 1: CANCELED\n")


def test_one_trial_of_a_search_is_not_paused_alone(cli: Cli, home: Home) -> None:
    """A trial of a running search cannot be paused or resumed alone; the refusal names the right commands."""
    experiment_id = create(cli, "--config", "data.endless=true")
    wait_until_running(home, experiment_id)

    refused = [cli("trial", command, "1") for command in ("pause", "resume")]
    stop = home.trial(1).read_stop_request(1)
    killed = cli("trial", "kill", "2", "--json")
    cli("experiment", "cancel", str(experiment_id))
    cli("experiment", "wait", str(experiment_id))
    resumed = cli("trial", "resume", "1", "--", "true")

    for answer in refused:
        assert answer.status == 1
        assert (
            f"core-sdk experiment pause {experiment_id}" in answer.errors and "core-sdk trial kill 1" in answer.errors
        )
    assert stop is None
    assert json.loads(killed.output) == {"trial_id": 2, "state": "CANCELED"}
    assert resumed.status == 0, resumed.errors


def test_ctrl_c_leaves_a_followed_experiment_running(start_cli: StartCli, home: Home) -> None:
    """Ctrl-C ends the command but not the experiment, and prints how to follow it again."""
    following = start_cli("experiment", "create", "search.yaml", "model", "-f", "--config", "data.endless=true")
    read_until_line_begins(following, "trial 1 begins")

    following.process.send_signal(signal.SIGINT)
    status, _, errors = following.wait()

    assert status == 130
    assert "experiment 1 goes on. `core-sdk experiment follow 1` shows it again" in errors
    assert search(home, 1).state == "ACTIVE"


def test_a_terminal_shows_one_table(home: Home, tmp_path: Path) -> None:
    """On a terminal, --follow shows each trial's state and best value and the search's progress."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.environ |= {"COLUMNS": "120", "LINES": "30", "TERM": "xterm"}
        os.execv(COMMAND[0], [*COMMAND, "experiment", "create", "search.yaml", "model", "-f"])
    output = b""
    while chunk := _read(terminal):
        output += chunk
    _, status = os.waitpid(pid, 0)
    os.close(terminal)

    text = output.decode()
    assert os.waitstatus_to_exitcode(status) == 0, text
    assert "Hyperparameters" in text
    assert "Experiment 1 · digits · COMPLETED · 2 trials, 0 running · best: trial" in text
    assert "lr=0.25" in text


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""  # the other end is closed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.yaml", "model"], "'nowhere.yaml' does not exist"),
        (["search.yaml", "nowhere"], "'nowhere' does not exist"),
        (["search.yaml", "model", "--config", "searcher.max_trails=3"], "searcher.max_trails"),
        (["search.yaml", "model", "--config", "entrypoint=null"], "entrypoint"),
        (["search.yaml", "model", "--config", "entrypoint=missing.sh"], "begins with the program 'missing.sh'"),
        (["search.yaml", "model", "--include", "model/train.py"], "the code directory has 'train.py' already"),
        (["search.yaml", "model", "--slots", "2"], "--slots is for --local"),
        (["train.bin", "model"], "train.bin is not text in UTF-8"),
    ],
)
def test_bad_input_is_told_at_once(cli: Cli, home: Home, tmp_path: Path, arguments: list[str], words: str) -> None:
    """Bad input ends with status 2 and leaves nothing behind."""
    (tmp_path / "train.bin").write_bytes(b"name: \xff\x00\n")

    ended = cli("experiment", "create", *arguments)

    assert ended.status == 2, ended.errors
    assert words in ended.errors
    assert "Traceback" not in ended.errors
    assert [path.name for path in home.experiments.iterdir()] == ["names"]


def test_each_mistake_in_a_configuration_has_a_line(cli: Cli) -> None:
    """Each unknown key of a configuration has a line of its own with the nearest known key."""
    ended = cli("experiment", "create", "search.yaml", "model", "--config", "nam=x", "--config", "searcher.metrc=y")

    assert ended.status == 2
    assert [line.startswith("core-sdk: ") for line in ended.errors.splitlines()] == [True, True]
    assert "did you mean name?" in ended.errors
    assert "did you mean metric?" in ended.errors


def test_what_the_master_refuses_is_told_in_its_words(cli: Cli, home: Home) -> None:
    """The master's refusal is printed once, and no experiment is left."""
    ended = cli("experiment", "create", "search.yaml", "model", "--config", "resources.slots_per_trial=99")

    assert ended.status == 2
    assert ended.errors.count("the master of this home") == 1
    assert ended.errors.endswith("this machine has 2.\n")
    assert [path.name for path in home.experiments.iterdir()] == ["names"]


def test_a_metric_that_is_not_a_number_is_told_as_such(cli: Cli, model: Path) -> None:
    """A NaN metric is shown as NaN, as in tables."""
    (model / "train.py").write_text(TRAIN.replace('info.trial.hparams["lr"] + 1 / step', "float('nan')"))

    ended = cli("experiment", "create", "search.yaml", "model", "--follow")

    assert "trial 1: loss NaN" in ended.output.splitlines()


def test_code_over_the_limit_is_refused(cli: Cli, home: Home, model: Path) -> None:
    """Code above the size limit is refused with the names of its largest files."""
    (model / "large.bin").write_bytes(bytes(2 << 20))

    refused = cli("experiment", "create", "search.yaml", "model", "--max-code-size", "1")

    assert refused.status == 2
    assert "'large.bin' (2.0 MiB)" in refused.errors


def test_archived_experiments_are_hidden(cli: Cli, home: Home) -> None:
    """An experiment can be archived only after its end and is then hidden from lists."""
    experiment_id = create(cli, "--paused")
    early = cli("experiment", "archive", str(experiment_id))
    cli("experiment", "kill", str(experiment_id))
    cli("experiment", "wait", str(experiment_id))

    archived = cli("experiment", "archive", str(experiment_id))

    assert (early.status, "only what has ended can be archived" in early.errors) == (1, True)
    assert archived.output == "experiment 1: archived\n"
    assert json.loads(cli("experiment", "list", "--json").output) == []
    assert len(json.loads(cli("experiment", "list", "--all", "--json").output)) == 1
    cli("experiment", "unarchive", str(experiment_id))
    assert len(json.loads(cli("experiment", "list", "--json").output)) == 1


def test_settings_change_while_an_experiment_runs(cli: Cli, home: Home) -> None:
    """Names, labels, priority and slots can be changed while the experiment runs."""
    create(cli, "--paused")
    settings: list[tuple[str, ...]] = [
        ("name", "renamed"),
        ("description", "what I try"),
        ("notes", "see *there*"),
        ("labels", "a", "b"),
        ("priority", "7"),
        ("max-slots", "1"),
        ("max-slots", "none"),
    ]

    ended = [cli("experiment", "set", setting, "1", *values) for setting, *values in settings]

    assert [each.status for each in ended] == [0] * len(settings), ended
    record = home.experiment(1).read()
    assert (record.name, record.description, record.notes) == ("renamed", "what I try", "see *there*")
    assert record.labels == ["a", "b"]
    (queued,) = json.loads(cli("queue", "list", "--json").output)
    assert (queued["experiment_id"], queued["name"], queued["priority"]) == (1, "renamed", 7)
    assert json.loads(cli("e", "set", "labels", "1", "c", "--json").output) == {"experiment": "1", "labels": ["c"]}
    wrong = [cli("experiment", "set", *words) for words in (("priority", "1", "100"), ("name", "1", "two", "words"))]
    assert [each.status for each in wrong] == [2, 2]


def test_the_configuration_is_shown_without_secrets(cli: Cli, home: Home) -> None:
    """Complete, as YAML that could be submitted again, or as it was written."""
    variables = "environment.environment_variables=[WANDB_API_KEY=hidden, EMPTY=]"
    create(cli, "--paused", "--config", "data.secrets={token: hidden}", "--config", variables)

    complete = cli("experiment", "config", "1")
    as_json = cli("experiment", "config", "1", "--json")
    original = cli("experiment", "config", "1", "--original")

    assert "max_restarts: 0" in complete.output
    assert "hidden" not in complete.output + as_json.output
    assert json.loads(as_json.output)["data"]["secrets"] == {"token": "********"}
    shown = json.loads(as_json.output)["environment"]["environment_variables"]
    assert shown == ["WANDB_API_KEY=********", "EMPTY=********"]
    assert "hidden" not in cli("report", "1", "--output", "report.html").output
    assert "hidden" not in (home.root.parent / "report.html").read_text()
    assert original.output == CONFIG


def test_the_code_comes_back(cli: Cli, home: Home, tmp_path: Path) -> None:
    """The code is downloaded into a new directory, and an existing one is refused."""
    create(cli, "--paused")

    first, again = cli("experiment", "download-code", "1"), cli("experiment", "download-code", "1")
    archive = cli("e", "download-model-def", "1", "--output-dir", str(tmp_path))

    assert (first.output, again.status) == ("experiment-1-code\n", 1)
    assert archive.output == f"{tmp_path / 'experiment_1_model_def.tgz'}\n"
    with tarfile.open(archive.output.strip()) as unpacked:
        assert "train.py" in unpacked.getnames()
    assert (tmp_path / "experiment-1-code" / "train.py").read_text() == TRAIN


@pytest.fixture
def completed(cli: Cli, home: Home) -> int:
    experiment_id = create(cli)
    assert cli("experiment", "wait", str(experiment_id)).status == 0
    return experiment_id


def test_the_best_trials_come_first(cli: Cli, completed: int) -> None:
    """Trials are sorted by the searcher's metric, and `best` shows the first one with its checkpoint."""
    trials = json.loads(cli("experiment", "trials", str(completed), "--json").output)
    best = json.loads(cli("experiment", "best", str(completed), "--json").output)
    shown = cli("experiment", "best", str(completed))

    assert [trial["hparams"]["lr"] for trial in trials] == [0.25, 0.5]
    assert best["trial_id"] == trials[0]["trial_id"]
    assert best["best"]["value"] == pytest.approx(0.25 + 1 / 3)
    assert "lr: 0.25" in shown.output
    assert best["best"]["checkpoint"]["storage_id"] in shown.output


def test_the_output_of_all_trials_is_printed(cli: Cli, completed: int) -> None:
    """Each line of an experiment's output names its trial, and --follow ends with the experiment."""
    now, followed = cli("experiment", "logs", str(completed)), cli("experiment", "logs", str(completed), "--follow")

    assert sorted(now.output.splitlines()) in (
        ["[trial=1] training with 0.25", "[trial=2] training with 0.5"],
        ["[trial=1] training with 0.5", "[trial=2] training with 0.25"],
    )
    assert followed.output == now.output


def test_another_experiment_comes_from_an_old_one(cli: Cli, home: Home, completed: int) -> None:
    """A fork begins from nothing, a continuation with the weights of the best trial."""
    forked = cli("experiment", "fork", str(completed), "--config", "name=forked", "-f", "--json")
    continued = cli("experiment", "continue", str(completed), "--new", "--paused")
    refused = cli("experiment", "continue", str(completed), "--trial", "1")
    by_trial = cli("trial", "continue", "1")

    row: dict[str, Any] = json.loads(forked.output)
    assert (row["name"], row["parent"], row["state"]) == ("forked", completed, "COMPLETED")
    assert continued.output == "Created experiment 3\n"
    assert home.experiment(3).read_submission().warm_start is not None
    assert home.experiment(3).read().parent == completed
    assert refused.status == 2
    assert "`core-sdk experiment continue --new --trial 1 EXPERIMENT` begins an experiment" in by_trial.errors


def test_an_experiment_is_deleted_once_it_has_ended(cli: Cli, home: Home, completed: int) -> None:
    """Ended experiments are deleted with all that belongs to them, and code with the last experiment that uses it."""
    running = create(cli, "--paused")

    refused = cli("experiment", "delete", str(running), "--yes", "--json")
    cli("experiment", "kill", str(running))
    cli("experiment", "wait", str(running))
    code = home.code_archive(home.experiment(running).read_submission().code or "")
    first = cli("experiment", "delete", str(running), "--yes", "--json")
    was_kept = code.exists()
    third = create(cli, "--paused", "--config", "name=third")
    cli("experiment", "kill", str(third))
    cli("experiment", "wait", str(third))
    deleted = cli("experiment", "delete", str(completed), "third", "--yes")

    assert (refused.status, json.loads(refused.output), "is PAUSED" in refused.errors) == (1, [], True)
    assert json.loads(first.output) == [{"experiment_id": running, "state": "DELETED"}]
    assert was_kept
    assert deleted.output == f"deleted experiment {completed}\ndeleted experiment {third}\n"
    assert home.experiment_ids() == home.trial_ids() == []
    assert list(code.parent.iterdir()) == []


def test_what_was_not_submitted_is_not_steered(cli: Cli, home: Home) -> None:
    """An experiment that is only the name of trials has no searcher; `pause` and `kill` are for its running trials."""
    new_trial(home, experiment="by hand")

    activated, paused = (cli("experiment", command, "by hand") for command in ("activate", "pause"))

    assert activated.status == paused.status == 1
    assert "experiment 1 was not submitted" in activated.errors
    assert "none of its trials is running" in paused.errors


def test_a_test_shows_that_a_script_does_what_a_search_needs(cli: Cli, home: Home, tmp_path: Path) -> None:
    """--test runs the script, stops and resumes it, and leaves no trial or experiment."""
    ended = cli("experiment", "create", "search.yaml", "model", "--test", "--config", "data.endless=true")

    assert ended.status == 0, ended.errors
    assert [line.split(":")[0] for line in ended.output.splitlines()] == [
        *["ok"] * 4,
        "the test is passed, and its trial is deleted",
    ]
    assert "it has stopped when it was asked to, with a checkpoint at step 1" in ended.output
    assert home.experiment_ids() == home.trial_ids() == []


def test_a_test_says_what_a_script_does_not_do(cli: Cli, home: Home, model: Path) -> None:
    """A failed --test names what the script does not do and shows the end of its output."""
    (model / "train.py").write_text("print('not a word of the metric')\n")

    ended = cli("experiment", "create", "search.yaml", "model", "--test")

    assert ended.status == 1
    assert "not a word of the metric" in ended.errors
    assert "has never reported 'loss' as validation" in ended.errors
    assert home.experiment_ids() == home.trial_ids() == []
