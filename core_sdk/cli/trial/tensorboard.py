"""`trial tensorboard`: TensorBoard over a trial's event files, in the foreground."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

from core_sdk.cli._exit_codes import of_child
from core_sdk.cli._messages import say
from core_sdk.errors import MissingDependencyError
from core_sdk.tensorboard import write_event_files
from core_sdk.tracking import HomeTracker


def serve_tensorboard(tracker: HomeTracker, trial_id: int, port: int) -> int:
    """Runs TensorBoard and returns its exit status. Raises `MissingDependencyError`."""
    if importlib.util.find_spec("tensorboard") is None:
        raise MissingDependencyError("tensorboard", extra="tensorboard", purpose="trial tensorboard")
    directory = tracker.tensorboard_directory(trial_id)
    # An attempt that was killed may not have written all of its event files.
    write_event_files(tracker.journals(trial_id), directory)
    arguments = ["--logdir", str(directory), "--port", str(port)]
    say(f"TensorBoard shows {directory}; Ctrl-C ends it")
    try:
        return of_child(subprocess.call([sys.executable, "-m", "tensorboard.main", *arguments]))
    except KeyboardInterrupt:
        return 0
