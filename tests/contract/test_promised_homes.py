"""What is promised of homes and machines, where no other test holds it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from interfaces.cli.recorded import new_attempt, new_trial
from interfaces.cli.recorded import store as store_recorded
from promises import promise
from saving import checkpoint_ids

from core_sdk._execution.experiments.calling import is_master_running
from core_sdk._execution.experiments.reviving import announce_master, revive_master
from core_sdk._execution.steering import trials
from core_sdk._ground.alive import signed_by
from core_sdk._ground.records import (
    SearchRecord,
)
from core_sdk._home import Home
from core_sdk._home.history import read_history
from core_sdk._home.moving.relocation import adopt
from core_sdk._home.next_attempt import mark_of_attempt
from core_sdk._home.storage import DirectoryStorage
from core_sdk._machine.processes import is_any_marked
from core_sdk._machine.slots import SlotDirectory, Ticket


@promise("copies-do-no-harm")
def test_only_the_same_folder_deletes_outside_and_starts_trainings(home: Home, tmp_path: Path) -> None:
    """A copied or restored home deletes nothing outside and starts no trainings until it is adopted as moved."""
    training = new_attempt(new_trial(home))
    store_recorded(training, "outside", 1, tmp_path / "shared")
    training.end()
    experiment = home.experiment(1)
    with experiment.edit() as record:
        record.search = SearchRecord(searcher="single", state="ACTIVE", home=home.identity())
    announce_master(home.root, [])
    copied = Home(shutil.copytree(home.root, tmp_path / "copy"))

    told = revive_master(copied.root)
    trials.delete(copied, 1)
    deletes_alone = read_history(home.folder(1)).checkpoints[0].is_inherited
    restored = Home(shutil.copytree(home.root, tmp_path / "restored"))

    assert "do not go on here" in told
    assert not is_master_running(copied.root)
    assert checkpoint_ids(DirectoryStorage(tmp_path / "shared")) == ["outside"] and not deletes_alone
    assert adopt(restored)
    trials.delete(restored, 1)
    assert checkpoint_ids(DirectoryStorage(tmp_path / "shared")) == []


@promise("slots-kept-to-the-end")
def test_a_slot_is_free_when_the_processes_that_have_it_are_gone(home: Home) -> None:
    """A slot is free when the last process of its attempt is gone, and not before; none is given without a ticket."""
    train = [sys.executable, "-c", "import time; time.sleep(600)"]
    command = [sys.executable, "-m", "core_sdk._interfaces.cli", "run", "--detach", "--slots", "1", "--", *train]
    subprocess.run(command, check=True, capture_output=True)
    folder = home.trial(1)
    agent = signed_by(folder.supervised_path(1))
    assert agent is not None
    waiting = Ticket(SlotDirectory(), Path("/another/home"), 1, ["cpu-0"])
    is_refused = not waiting.held

    os.kill(agent, signal.SIGKILL)
    while not waiting.take(1, ["cpu-0"]):
        pass

    assert is_refused
    assert not is_any_marked(str(mark_of_attempt(folder, 1)))
    SlotDirectory().path.chmod(0o755)
    assert subprocess.run(command, capture_output=True).returncode == 1
    waiting.release()
