"""Submitting experiments: what is checked, what is written, and what the master is told."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from interfaces.cli.recorded import new_attempt, new_trial, store
from promises import promise

from core_sdk._execution.experiments.calling import call
from core_sdk._execution.experiments.protocol import Want
from core_sdk._execution.experiments.submission import (
    Submitted,
    continue_as_new,
    continue_in_place,
    continued_config,
    fork,
    submit,
)
from core_sdk._ground.records import SearcherMetric
from core_sdk._home import Home
from core_sdk.errors import CodeDirectoryError, ExperimentError, InvalidConfigError

CONFIG = """
# what I try
name: digits
labels: [mine]
entrypoint: python3 train.py
hyperparameters:
  lr: {type: double, minval: 0.1, maxval: 1.0}
searcher: {name: random, metric: accuracy, smaller_is_better: false, max_trials: 2}
max_restarts: 0
resources: {slots_per_trial: 0}
"""

pytestmark = pytest.mark.usefixtures("master")

SINGLE = CONFIG.replace("name: random", "name: single").replace(", max_trials: 2", "")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "train.py").write_text("print('trained')\n")
    return tmp_path / "model"


def submit_paused(home: Home, model: Path | None, text: str = CONFIG, *overrides: str) -> Submitted:
    return submit(home, text, source="config.yaml", model_dir=model, overrides=overrides, is_paused=True)


def await_end(home: Home, experiment_id: int) -> str:
    folder = home.experiment(experiment_id)
    while (search := folder.read().search) is None or not search.has_ended:
        time.sleep(0.05)
    return search.state


def experiments(home: Home) -> list[int]:
    return [int(path.name) for path in home.experiments.iterdir() if path.name.isdigit()]


def test_an_experiment_keeps_what_was_submitted(home: Home, model: Path) -> None:
    """An experiment stores the text as submitted, the complete configuration, and what else its trials need."""
    submitted = submit_paused(home, model, CONFIG, "searcher.max_trials=3", "reproducibility.experiment_seed=5")

    folder = home.experiment(submitted.experiment_id)
    record, submission = folder.read(), folder.read_submission()
    completed = json.loads(folder.completed_config_path.read_bytes())
    assert folder.config_path.read_text() == CONFIG
    assert (completed["searcher"]["max_trials"], completed["max_restarts"]) == (3, 0)
    assert submission.overrides == ["searcher.max_trials=3", "reproducibility.experiment_seed=5"]
    assert submission.environment["PATH"] == os.environ["PATH"]
    assert (record.name, record.labels, record.is_submitted) == ("digits", ["mine"], True)
    assert record.searcher_metric == SearcherMetric(name="accuracy", smaller_is_better=False, group="validation")
    assert [path.name for path in (home.root / "code").iterdir()] == [f"{submission.code}.tar.gz"]


def test_experiments_of_one_name_are_different_experiments(home: Home, model: Path) -> None:
    """Submissions with the same name are different experiments, and equal code is stored once."""
    first, second = submit_paused(home, model), submit_paused(home, model)

    assert first.experiment_id != second.experiment_id
    assert len(list((home.root / "code").iterdir())) == 1


def test_trials_run_in_copies_of_the_code(home: Home, model: Path) -> None:
    """A program of the code directory is found there, after its hook was sourced."""
    (model / "run.sh").write_text('#!/bin/sh\necho "$GREETING from $PWD"\n')
    (model / "startup-hook.sh").write_text("export GREETING=hello\n")
    for script in ("run.sh", "startup-hook.sh"):
        (model / script).chmod(0o755)
    text = SINGLE.replace("python3 train.py", "[./run.sh]")

    submitted = submit(home, text, source="config.yaml", model_dir=model)

    assert await_end(home, submitted.experiment_id) == "COMPLETED"
    assert home.trial(1).log_path(1).read_text() == f"hello from {home.runs}/1/code\n"


def test_without_a_code_directory_trials_run_where_they_were_submitted(
    home: Home, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a code directory, trials run where the experiment was submitted, and no code is packed."""
    monkeypatch.chdir(model)

    submitted = submit(home, SINGLE, source="config.yaml")

    assert await_end(home, submitted.experiment_id) == "COMPLETED"
    assert home.trial(1).log_path(1).read_text() == "trained\n"
    assert not (home.root / "code").exists()


@pytest.mark.parametrize(
    ("entrypoint", "program"),
    [
        ("pyhton train.py", "pyhton"),
        ("[pyhton, train.py]", "pyhton"),
        ("./train.py", "./train.py"),
        ("[missing/run.sh]", "missing/run.sh"),
        ("/nowhere/python train.py", "/nowhere/python"),
    ],
)
def test_a_program_that_is_missing_is_told_at_once(home: Home, model: Path, entrypoint: str, program: str) -> None:
    """An entrypoint whose program is missing is refused, and no experiment is left."""
    with pytest.raises(InvalidConfigError, match=f"entrypoint begins with the program '{program}', which"):
        submit_paused(home, model, CONFIG.replace("python3 train.py", entrypoint))

    assert experiments(home) == []


@pytest.mark.parametrize("entrypoint", ["cd . && ./any", "'NAME=1 any'", "'$ANY train.py'", "exec any", "train.sh"])
def test_a_shell_is_not_second_guessed(home: Home, model: Path, entrypoint: str) -> None:
    """An entrypoint that needs a shell is accepted without a check of its program."""
    (model / "bin").mkdir()
    (model / "bin" / "train.sh").write_text("#!/bin/sh\n")
    (model / "bin" / "train.sh").chmod(0o755)
    variables = f"environment: {{environment_variables: ['PATH={model}/bin:/usr/bin:/bin']}}\n"

    submit_paused(home, model, CONFIG.replace("python3 train.py", entrypoint) + variables)

    assert experiments(home) == [1]


@pytest.mark.parametrize("entrypoint", ["python3 train.py", "[python3, train.py]"])
def test_a_python_without_core_sdk_is_warned_of(home: Home, model: Path, tmp_path: Path, entrypoint: str) -> None:
    """An entrypoint whose Python of PATH has no core_sdk is accepted with a warning that names both Pythons."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "other")], check=True)
    python = str(tmp_path / "other" / "bin" / "python3")
    own = Path(sys.executable).parent
    text = CONFIG.replace("python3 train.py", entrypoint)

    os.environ["PATH"] = f"{own}{os.pathsep}{os.environ['PATH']}"
    expected = submit_paused(home, model, text)
    os.environ["PATH"] = f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"
    other = submit_paused(home, model, text)

    assert expected.warnings == ()
    (warning,) = other.warnings
    assert f"python3, which is {python} and has no core_sdk; core-sdk itself runs with {sys.executable}" in warning
    variables = home.experiment(other.experiment_id).read_submission().environment
    assert variables["PATH"].startswith(str(Path(python).parent))


def test_a_startup_hook_may_bring_any_program(home: Home, model: Path) -> None:
    """With a startup hook, which can change PATH, the entrypoint's program is not checked."""
    (model / "startup-hook.sh").write_text("PATH=$PATH:/opt/tool/bin\n")
    (model / "startup-hook.sh").chmod(0o755)

    submit_paused(home, model, CONFIG.replace("python3 train.py", "tool train.py"))

    assert experiments(home) == [1]


@promise("submission-kept")
def test_a_bad_configuration_or_directory_leaves_nothing(home: Home, model: Path) -> None:
    """After a bad configuration or code directory, neither an experiment nor an archive is left."""
    (model / "link").symlink_to("/nowhere")
    with pytest.raises(InvalidConfigError, match=r"config\.yaml:8: searcher\.max_trials"):
        submit_paused(home, model, CONFIG.replace("max_trials: 2", "max_trials: many"))
    with pytest.raises(CodeDirectoryError, match="'link'"):
        submit_paused(home, model)

    assert experiments(home) == []
    assert not (home.root / "code").exists()


def test_a_fork_has_the_same_code_and_the_edited_configuration(home: Home, model: Path) -> None:
    """A fork has the first experiment's code, text and overrides, except for overrides that are given again."""
    first = submit_paused(home, model, CONFIG, "searcher.max_trials=3", "max_restarts=1")
    (model / "train.py").write_text("changed")

    second = fork(home, first.experiment_id, overrides=["max_restarts=2"], is_paused=True)

    folder = home.experiment(second.experiment_id)
    completed = json.loads(folder.completed_config_path.read_bytes())
    assert (completed["searcher"]["max_trials"], completed["max_restarts"]) == (3, 2)
    assert folder.config_path.read_text() == CONFIG
    assert folder.read().parent == first.experiment_id
    assert folder.read_submission().code == home.experiment(first.experiment_id).read_submission().code


def test_a_fork_may_have_another_configuration(home: Home, model: Path) -> None:
    """A fork with its own configuration does not inherit the first experiment's overrides."""
    first = submit_paused(home, model, CONFIG, "max_restarts=1")

    second = fork(home, first.experiment_id, SINGLE, source="other.yaml", is_paused=True)

    folder = home.experiment(second.experiment_id)
    completed = json.loads(folder.completed_config_path.read_bytes())
    assert (completed["searcher"]["name"], completed["max_restarts"]) == ("single", 0)


def test_the_configuration_of_a_continuation_freezes_the_hyperparameters() -> None:
    """A continuation's configuration has the source trial's hyperparameters as constants, and a single searcher."""
    config = {
        "name": "digits",
        "hyperparameters": {"lr": {"type": "double", "minval": 0.1, "maxval": 1.0}},
        "searcher": {"name": "asha", "metric": "loss", "max_trials": 9, "max_length": {"epochs": 3}, "divisor": 4},
    }
    hparams = {"lr": 0.5, "optimizer": {"name": "adam", "betas": [0.9, 0.99]}, "odd": {"type": "x"}, "none": {}}

    continued = continued_config(config, 7, hparams)

    assert continued == {
        "name": "digits",
        "hyperparameters": {
            "lr": 0.5,
            "optimizer": {"name": "adam", "betas": [0.9, 0.99]},
            "odd": {"type": "const", "val": {"type": "x"}},
            "none": {"type": "const", "val": {}},
        },
        "searcher": {"name": "single", "metric": "loss", "max_length": {"epochs": 3}, "source_trial_id": 7},
    }


def test_a_new_experiment_continues_a_trial(home: Home, model: Path) -> None:
    """A new experiment that continues a trial gets its code, checkpoint and hyperparameters."""
    first = submit_paused(home, model)
    folder = new_trial(home)
    record = folder.read_record()
    record.experiment_id, record.hparams = first.experiment_id, {"lr": 0.25}
    folder.write_record(record)
    store(new_attempt(folder), "ckpt", 10)

    second = continue_as_new(home, folder.trial_id, overrides=["max_restarts=3"], is_paused=True)

    continuing = home.experiment(second.experiment_id)
    completed = json.loads(continuing.completed_config_path.read_bytes())
    assert completed["hyperparameters"] == {"lr": 0.25}
    assert (completed["searcher"]["source_trial_id"], completed["max_restarts"]) == (folder.trial_id, 3)
    assert continuing.read_submission().warm_start == "ckpt"
    assert continuing.read().parent == first.experiment_id


def test_a_trial_without_a_checkpoint_cannot_be_a_source(home: Home, model: Path) -> None:
    """A source trial without a checkpoint is refused with the name of the field, searcher.source_trial_id."""
    trial_id = new_trial(home).trial_id

    with pytest.raises(InvalidConfigError, match=r"searcher\.source_trial_id names trial 1, which has no checkpoint"):
        submit_paused(home, model, CONFIG, f"searcher.source_trial_id={trial_id}")


def test_an_experiment_that_has_ended_goes_on(home: Home, model: Path) -> None:
    """An ended experiment is continued in place: its trial gets a new attempt, new overrides and its code again."""
    script = """
        import core_sdk as det
        with det.core.init() as context:
            print("attempt", det.get_cluster_info().trial.attempt, det.get_cluster_info().user_data)
    """
    (model / "train.py").write_text(textwrap.dedent(script))
    text = SINGLE.replace("python3 train.py", f"{sys.executable} train.py")
    submitted = submit(home, text, source="config.yaml", model_dir=model)
    assert await_end(home, submitted.experiment_id) == "COMPLETED"

    was_removed = not home.trial(1).code_path.exists()
    continue_in_place(home, submitted.experiment_id, overrides=["data.more=1"])

    while not home.trial(1).log_path(2).exists():
        time.sleep(0.05)
    assert await_end(home, submitted.experiment_id) == "COMPLETED"
    assert was_removed
    assert "attempt 2 {'more': 1}" in home.trial(1).log_path(2).read_text()


def test_an_experiment_whose_submission_was_killed_can_be_activated(home: Home, model: Path) -> None:
    """An experiment that was submitted completely, but never reached a master, can be activated."""
    begun = home.experiment(submit_paused(home, model, SINGLE).experiment_id)
    folder = home.allot_experiment()
    for path in (begun.config_path, begun.completed_config_path, begun.submission_path):
        shutil.copy(path, folder.path)
    record = begun.read()
    record.experiment_id, record.search = folder.experiment_id, None
    folder.write(record)

    call(home.root, Want(experiment_id=folder.experiment_id, state="ACTIVE"))

    assert await_end(home, folder.experiment_id) == "COMPLETED"
    assert len(home.trial_ids()) == 1


@pytest.mark.parametrize(
    "entrypoint", ["{python} train.py ${{args}} x=${{hparams.opt.name}}", "[{python}, train.py, '${{args}}']"]
)
def test_an_unmodified_script_gets_its_hyperparameters_as_arguments(home: Home, model: Path, entrypoint: str) -> None:
    """${args} and ${hparams.…} in an entrypoint, string or list, become arguments, and also in a fork."""
    (model / "train.py").write_text("import sys; print(sys.argv[1:])")
    text = SINGLE.replace("python3 train.py", entrypoint.format(python=sys.executable))
    text = text.replace("lr: {type: double, minval: 0.1, maxval: 1.0}", "{lr: 1e-5, opt: {name: a $HOME b}}")
    submitted = submit(home, text, source="config.yaml", model_dir=model)
    await_end(home, submitted.experiment_id)

    await_end(home, fork(home, submitted.experiment_id).experiment_id)

    words = ["--lr=1e-05", "--opt.name=a $HOME b", *(["x=a $HOME b"] if entrypoint.startswith("{") else [])]
    outputs = [home.trial(trial_id).log_path(1).read_text() for trial_id in (1, 2)]
    assert outputs == [f"{words}\n"] * 2


@pytest.mark.parametrize(
    ("entrypoint", "problem"),
    [
        ("python3 train.py --lr ${hparams.rate}", r"names ${hparams.rate}, but the hyperparameters are lr"),
        ("python3 train.py --lr ${lr}", "has ${lr}, which no value replaces: write ${hparams.lr}"),
        ("python3 train.py --lr {{lr}}", "has {{lr}}, which no value replaces: write ${hparams.lr}"),
        ("lr=3 && python3 train.py --lr ${lr}", None),
        ("python3 train.py --lr ${hparams.lr} $HOME ${HOME} $$", None),
    ],
)
def test_an_argument_that_nothing_fills_is_refused(
    home: Home, model: Path, entrypoint: str, problem: str | None
) -> None:
    """A reference in the entrypoint that no hyperparameter fills is refused on submission."""
    text = CONFIG.replace("entrypoint: python3 train.py", f"entrypoint: '{entrypoint}'")

    if problem is None:
        submit_paused(home, model, text)
    else:
        with pytest.raises(InvalidConfigError, match=re.escape(problem)):
            submit_paused(home, model, text)


def test_what_has_not_ended_is_not_continued(home: Home, model: Path) -> None:
    """An experiment that has not ended, or of several trials with other settings, cannot be continued in place."""
    submitted = submit_paused(home, model)

    with pytest.raises(ExperimentError, match="has not ended"):
        continue_in_place(home, submitted.experiment_id)

    call(home.root, Want(experiment_id=submitted.experiment_id, state="KILLED"))
    assert await_end(home, submitted.experiment_id) == "CANCELED"
    with pytest.raises(ExperimentError, match="keeps its hyperparameters"):
        continue_in_place(home, submitted.experiment_id, overrides=["hyperparameters.lr=1"])
    with pytest.raises(ExperimentError, match="has several trials"):
        continue_in_place(home, submitted.experiment_id, overrides=["max_restarts=3"])
