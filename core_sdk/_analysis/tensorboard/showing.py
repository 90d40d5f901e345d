"""Shows trials in TensorBoard while they train, and writes their event files into a directory."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tensorboard import program

from core_sdk._analysis.tensorboard._reported import ReportedEvents
from core_sdk._home import TrialFolder

_LOOK_INTERVAL_S = 2.0
_OF_SCRIPT = "script"
"""The directory of the files that the trial's script has written itself."""


def export(trials: Sequence[TrialFolder], directory: Path) -> None:
    """Writes the trials' event files, each trial's into a directory of its own in `directory`."""
    for trial in trials:
        target = _directory_of(trial, directory)
        ReportedEvents(trial, target).write_new()
        if trial.tensorboard_path.is_dir():
            shutil.copytree(trial.tensorboard_path, target / _OF_SCRIPT, dirs_exist_ok=True)


def show(trials: Sequence[TrialFolder], port: int, on_start: Callable[[str], None]) -> None:
    """Shows the trials, and what they go on to report, until `KeyboardInterrupt`.

    `on_start` is called with the address. Raises `ValueError` if the port is taken.
    """
    with tempfile.TemporaryDirectory(prefix="core-sdk-tensorboard-") as name:
        directory = Path(name)
        shown = [(trial, _directory_of(trial, directory)) for trial in trials]
        board = program.TensorBoard()
        board.configure(argv=["tensorboard", "--logdir", name, "--port", str(port)])
        try:
            on_start(board.launch())
        except program.TensorBoardServerException as error:
            raise ValueError(str(error)) from error
        reported = [ReportedEvents(trial, target) for trial, target in shown]
        while True:
            for events in reported:
                events.write_new()
            for trial, target in shown:
                if trial.tensorboard_path.is_dir() and not (target / _OF_SCRIPT).exists():
                    (target / _OF_SCRIPT).symlink_to(trial.tensorboard_path.absolute(), target_is_directory=True)
            time.sleep(_LOOK_INTERVAL_S)


def _directory_of(trial: TrialFolder, directory: Path) -> Path:
    target = directory / f"trial-{trial.trial_id}"
    target.mkdir(parents=True, exist_ok=True)
    return target
