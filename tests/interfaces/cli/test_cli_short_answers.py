"""What the skill tells an agent to run answers in 4 KB, whatever a home and a script contain."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from home.journals import new_trial, record, report, vary
from interfaces.cli.commands import COMMAND, WriteScript
from processes import TIMEOUT_S

from core_sdk._analysis.evidence import MOST_BYTES, keep_sources
from core_sdk._execution.experiments.code import pack
from core_sdk._execution.steering import trials
from core_sdk._ground.records import CodeRecord, StudyRecord
from core_sdk._home import Home, TrialFolder

HOSTILE = "𝐀ü精" * 5_000
MANY = {f"{HOSTILE[:30]}{number}": HOSTILE[:200] for number in range(100)}
SCRIPT = f"""
    import sys
    from core_sdk import core
    with core.init(hparams={{"rate": 0.1}}) as context:
        context.train.report_training_metrics(1, {{"loss": 0.5}})
        context.train.report_validation_metrics(1, {{"accuracy": 0.95}})
        with context.checkpoint.store_path({{"steps_completed": 1}}):
            print("{HOSTILE}\\n" * 20)
        raise ValueError("{HOSTILE}")
    """
SKILL = resources.files("core_sdk._analysis.evidence").joinpath("skill.md").read_text("utf-8")
IN_THE_SKILL = list(dict.fromkeys(re.findall(r"`(core-sdk (?!COMMAND)[^`]+)`", SKILL)))


@pytest.fixture
def hostile(home: Home, write_script: WriteScript, tmp_path: Path) -> Home:
    """A home of 60 trials with long names, hypotheses, hyperparameters, metrics, notes, sources and outputs."""
    write_script(SCRIPT)
    metrics: dict[str, Any] = {"accuracy": 0.95, "loss": 0.5} | dict.fromkeys(list(MANY)[:20], 0.5)
    for number in range(60):
        folder = new_trial(home, experiment=HOSTILE[:60], **MANY | {"number": number})
        vary(folder, number or None, HOSTILE)
        record(folder, report(1, "validation", **metrics))
        if number < 2:
            (tmp_path / f"{HOSTILE[:20]}.txt").write_text(HOSTILE)
            keep_sources(folder, tmp_path)
            folder.log_path(1).write_bytes(b"\r".join([HOSTILE.encode()] * 100) * 5)
            _make_try(home, folder, tmp_path)
            trials.describe(home, number + 1, name=HOSTILE[:80], notes=HOSTILE, verdict="keep", verdict_reason=HOSTILE)
    return home


def _make_try(home: Home, folder: TrialFolder, directory: Path) -> None:
    """Makes the trial a try of the study of this directory."""
    trial = folder.read_record()
    with home.experiment(trial.experiment_id).edit() as experiment:
        command = [sys.executable, "train.py"]
        experiment.study = StudyRecord(directory=str(directory), best_by="max.accuracy", command=command, num_seeds=1)
    trial.try_id, trial.code = folder.trial_id, CodeRecord(sha256=pack(home, directory).sha256)
    folder.write_record(trial)


@pytest.mark.parametrize("command", IN_THE_SKILL)
def test_a_command_of_the_skill_prints_at_most_4_kb(hostile: Home, command: str, tmp_path: Path) -> None:
    """What comes back to an agent, stdout and stderr together, is bounded, and is text."""
    filled = command.replace("ID", "2").replace("NAME", "accuracy").replace("TEXT", "why")
    filled = filled.replace("python train.py", f"{shlex.quote(sys.executable)} train.py").replace("STUDY", "other")
    filled = filled.replace("10m", "10s")
    own = f'core-sdk() {{ {shlex.join(COMMAND)} "$@"; }}'

    ended = subprocess.run(
        ["bash", "-c", f"{own}; {filled}"],
        cwd=tmp_path,
        capture_output=True,
        timeout=TIMEOUT_S,
        env=os.environ | {"PYTHONUTF8": "1"},
    )

    answer = ended.stdout + ended.stderr
    assert b"Traceback" not in answer
    assert 0 < len(answer) <= MOST_BYTES
