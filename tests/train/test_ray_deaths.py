"""The processes of a training on Ray, killed in turn."""

from __future__ import annotations

from pathlib import Path

import pytest
from execution.workers.engines import UnwatchedRay
from parts import needs
from processes import wait_for
from promises import promise
from train.ray_training import BOUND_S, RayTraining

from core_sdk._home import Home

pytestmark = [needs("ray"), pytest.mark.timeout(400)]


@promise("ray-workers-end")
@pytest.mark.parametrize(
    "killed",
    [
        ["gcs_server"],
        ["raylet"],
        ["gcs_server", "raylet"],
        ["gcs_server", "program"],
        ["program"],
        ["actor"],
        ["worker"],
    ],
    ids=" and ".join,
)
def test_no_worker_outlives_a_death(unwatched_ray: UnwatchedRay, home: Home, tmp_path: Path, killed: list[str]) -> None:
    """No worker outlives a killed process of Ray or of the training; a living program records the end."""
    training = RayTraining(unwatched_ray, home, tmp_path)
    own = {"actor": training.actors[0], "worker": training.workers[0]}

    for name in killed:
        if name == "program":
            training.program.process.kill()
        elif name in own:
            own[name].kill()
        else:
            unwatched_ray.kill(name)

    code, output, errors = training.await_end()
    wait_for(lambda: home.trial(1).running_attempt() is None, BOUND_S)
    if "program" not in killed:
        assert code == 0, errors
        assert "trial 1 has failed" in output, errors
        assert home.trial(1).read_exit(1) is not None
    if killed == ["gcs_server"]:
        assert "was lost with its Ray cluster: it does not answer any more" in output, errors
