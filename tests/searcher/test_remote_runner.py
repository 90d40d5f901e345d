"""A search method that is driven inside a trial."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from searcher.methods import Promoting, posted, write_code

from core_sdk import client
from core_sdk._execution.master.local import local_master
from core_sdk._home import Home
from core_sdk.client import ExperimentState
from core_sdk.search import CustomSearch
from core_sdk.search.simulation import simulate

DRIVER = """
import os
import signal
import sys
from pathlib import Path

sys.path[:0] = {path!r}

from searcher.methods import CONFIG, Promoting

from core_sdk import core
from core_sdk.searcher import RemoteSearchRunner


class Dying(Promoting):
    def on_validation_completed(self, *arguments):
        if None not in self.rungs[0].values() and not Path({marker!r}).exists():
            Path({marker!r}).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().on_validation_completed(*arguments)


with core.init() as context:
    RemoteSearchRunner(Dying(), context).run(CONFIG, {code!r})
"""


@pytest.mark.timeout(300)
def test_a_killed_driver_goes_on_from_its_checkpoint(home: Home, tmp_path: Path) -> None:
    """The master starts its trial again, which submits nothing again and decides as one that was not killed."""
    driver, tests = tmp_path / "driver", Path(__file__).parent.parent
    driver.mkdir()
    code, marker = write_code(tmp_path / "code"), tmp_path / "was killed"
    (driver / "drive.py").write_text(
        DRIVER.format(path=[str(tests), *sys.path], marker=os.fspath(marker), code=os.fspath(code))
    )

    with local_master(Home.create(home.root), 2):
        outer = client.create_experiment(
            {
                "name": "driver",
                "entrypoint": [sys.executable, "drive.py"],
                "searcher": {"name": "single", "metric": "none"},
                "resources": {"slots_per_trial": 0},
                "max_restarts": 1,
            },
            driver,
        )
        state = outer.wait(0.05)
        inner = client.get_experiment("own")

    simulation = simulate(
        CustomSearch(Promoting()), lambda create, length: create.hparams["x"] / length, validations=[]
    )
    assert (state, inner.state) == (ExperimentState.COMPLETED,) * 2
    assert marker.exists()
    assert outer.list_trials()[0].num_attempts == 2
    assert len(client.list_experiments()) == 2
    assert [trial.hparams["x"] for trial in inner.list_trials()] == [
        trial.create.hparams["x"] for trial in simulation.trials
    ]
    assert len(posted(home, inner.id)) == len(set(posted(home, inner.id)))
    assert len(outer.list_checkpoints()) <= 2
