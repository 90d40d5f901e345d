"""Trainings on as many workers as there is room for."""

from __future__ import annotations

import pytest
from execution.workers.engines import RayNode
from execution.workers.programs import Programs
from processes import wait_for

from core_sdk import client


def test_a_training_grows_once_there_is_room(trainings: Programs) -> None:
    """An elastic training grows at a checkpoint once there is room for more workers, and goes on from there."""
    if trainings.engine == "local":
        pytest.skip("on one machine there is room for all workers from the beginning")
    trainings.run(
        """
        import ray
        ray.init(SCALING["address"], logging_level="ERROR")

        @ray.remote(num_cpus=6)
        class Guest:
            def ready(self):
                return True

        guest = Guest.remote()
        ray.get(guest.ready.remote())

        def leave():
            wait_for(lambda: is_marked("small"))
            ray.kill(guest)

        threading.Thread(target=leave, daemon=True).start()

        def function():
            size = train.get_context().get_world_size()
            if size < 4:
                while True:
                    mark("small")
                    report(0, {"step": "0"} if rank() == 0 else None, size=size)
                    time.sleep(0.05)
            report(1, size=size)
            return size

        result = fit(function, num_workers=(1, 4), scaling_options={"elastic_resize_monitor_interval_s": 0.5})
        assert result.return_value == 4
        sizes = result.metrics_dataframe["size"].tolist()
        assert sizes[0] == 2 and sizes[-1] == 4, sizes
        """
    )


def test_a_training_that_lost_a_worker_goes_on_with_as_many(trainings: Programs) -> None:
    """After a worker is lost, the training restarts with as many workers, which reuse the freed resources."""
    trainings.run("""
        def function():
            report(0, {"step": "0"} if rank() == 0 else None)
            if rank() == 1 and not is_marked("died"):
                mark("died")
                os.kill(os.getpid(), signal.SIGKILL)
            return train.get_context().get_world_size()

        assert fit(function, num_workers=(1, 3), max_failures=3).return_value == 3
    """)


@pytest.mark.parametrize("programs", ["ray"], indirect=True)
def test_a_cluster_that_goes_away_ends_the_training(trainings: Programs, dying_ray: RayNode) -> None:
    """If the cluster goes away, the training ends with an error that says so, in place of a retry or a resize."""
    program = trainings.start(f"""
        SCALING["address"] = {dying_ray.address!r}

        def function():
            report(0, {{"step": "0"}})
            mark("training")
            time.sleep(600)

        fit(function, num_workers=(1, 3), max_failures=3, scaling_options={{"elastic_resize_monitor_interval_s": 0.5}})
    """)
    wait_for((trainings.directory / "training").exists)
    dying_ray.kill()
    code, _, errors = program.wait()

    words = f"the Ray cluster at {dying_ray.address} cannot be used: it does not answer any more"
    assert code == 1
    assert words in errors, "Ray has not kept it back"
    assert "Exception in thread" not in errors
    trial = client.get_trial(1)
    assert trial.state.name == "ERROR"
    assert words in trial.reason
